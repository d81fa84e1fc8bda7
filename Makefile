# make demo: the whole chain on real images.  make test: what to run after every change.  make help: the rest.
VENV        ?= $(or $(VIRTUAL_ENV),.venv)
PYTHON      ?= python3
CONSTRAINTS ?= constraints.txt
ROOT        ?= outputs/demo
EXPERIMENT  ?= digits
DATA        ?= data
PY          := $(VENV)/bin/python
ACTIVE      := $(filter $(VIRTUAL_ENV),$(VENV))

.PHONY: help demo ladder test test-docs test-changed test-all docs lint proto clean

help:
	@echo "make demo   install, then train -> search -> finetune -> qat -> export -> infer, encrypted; report in $(ROOT)"
	@echo "make ladder EXPERIMENT=mobilenetv2_cifar10_short DATA=/images   the whole chain of configs/experiment, resumable"
	@echo "make test   install what tests need, and run what tells in minutes whether a change broke something"
	@echo "make test-docs     help, documents, settings and the order of the house; make docs: the site, in outputs/site"
	@echo "make test-changed  the slow tests of what changed since all of them passed; CI runs them after make test"
	@echo "make test-all      everything: long trainings, real rings, every notebook, wheels, browsers, the site"
	@echo "make lint   format and type checks"
	@echo "make proto  the service's messages, after a change of privcirnet/service/inference.proto"
	@echo "make clean  remove outputs, and the virtual environment unless it is the active one"
	@echo "An active virtual environment is used as it is; else $(VENV) is made."

$(VENV)/installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit("error: Python must be 3.11 or newer: got %d.%d; set PYTHON=" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(if $(ACTIVE),,$(PYTHON) -m venv $(VENV))
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --progress-bar on -c $(CONSTRAINTS) -e .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(PY) -m pip install --quiet -c $(CONSTRAINTS) -e '.[test]'
	touch $@

demo: $(VENV)/installed
	$(PY) -m privcirnet demo root=$(ROOT)

ladder: ROOT = outputs/$(EXPERIMENT)
ladder: $(VENV)/installed
	$(PY) ladder.py experiment=$(EXPERIMENT) root=$(ROOT) data.root=$(DATA)
	$(PY) report.py $(ROOT)

$(VENV)/installed-docs: $(VENV)/installed
	$(PY) -m pip install --quiet -c $(CONSTRAINTS) -e '.[docs]'
	touch $@

# Where bytecode is kept, processes do not each compile all tests.
PYTEST = PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n auto --dist worksteal

test: $(VENV)/installed-test
	$(PYTEST) -m "not slow and not docs"

test-docs: $(VENV)/installed-test
	$(PYTEST) -m "docs and not slow"

test-changed: $(VENV)/installed-test
	files=$$($(PY) .ci/changed.py) && { [ -z "$$files" ] || $(PYTEST) -m slow $$files || [ $$? -eq 5 ]; }  # 5: none is slow

# The lower bounds are the toolkit's; the site needs a newer jinja2 than they allow.
test-all: $(VENV)/installed-test $(if $(filter constraints.txt,$(CONSTRAINTS)),docs)
	TESTS=whole $(PYTEST)

docs: $(VENV)/installed-docs
	$(PY) -m mkdocs build --strict

lint: $(VENV)/installed
	$(PY) -m pip install --quiet -c $(CONSTRAINTS) -e '.[test,dev]'
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyright --pythonpath $(PY)

proto: $(VENV)/installed-test
	$(PY) -m grpc_tools.protoc -Iprivcirnet/service --descriptor_set_out=privcirnet/service/inference.binpb inference.proto

clean:
	rm -rf $(if $(ACTIVE),$(VENV)/installed*,$(VENV)) outputs
