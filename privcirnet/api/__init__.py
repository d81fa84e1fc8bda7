"""The front for other programs: any nn.Module, any tensors or DataLoader, no files of settings.

Each verb is a thin layer over the code of the scripts: :func:`.network.fit` over :mod:`privcirnet.train`,
:mod:`.search` and :mod:`.compile` over :mod:`privcirnet.runs`.
"""
