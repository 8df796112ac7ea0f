"""The embedded deployment of `datalens train`: store, ledger and job in a folder, without a service."""
