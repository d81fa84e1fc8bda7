# make demo: the whole chain on real images.  make test: everything that is tested.  make help: the rest.
VENV        ?= .venv
PYTHON      ?= python3
CONSTRAINTS ?= constraints.txt
ROOT        ?= outputs/demo
EXPERIMENT  ?= digits
DATA        ?= data
PY          := $(VENV)/bin/python

.PHONY: help demo ladder test docs lint proto clean

help:
	@echo "make demo   install, then train -> search -> finetune -> qat -> export -> infer, encrypted; report in $(ROOT)"
	@echo "make ladder EXPERIMENT=mobilenetv2_cifar10_short DATA=/images   the whole chain of configs/experiment, resumable"
	@echo "make test   install what tests need and run them all"
	@echo "make docs   the documentation as a site, checked strictly, in outputs/site"
	@echo "make lint   format and type checks"
	@echo "make proto  the service's messages, after a change of privcirnet/service/inference.proto"
	@echo "make clean  remove the virtual environment and outputs"

$(VENV)/installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit("error: Python must be 3.11 or newer: got %d.%d; set PYTHON=" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
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

# The lower bounds are the toolkit's; the site needs a newer jinja2 than they allow.
test: $(VENV)/installed-test $(if $(filter constraints.txt,$(CONSTRAINTS)),docs)
	$(PY) -m pytest -n auto --dist worksteal

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
	rm -rf $(VENV) outputs
