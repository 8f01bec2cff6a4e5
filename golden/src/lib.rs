//! The floating-point reference: tensors, the Llama transformer, model loaders.
