//! Software on the host CPU: lowers a model to NPU commands.
