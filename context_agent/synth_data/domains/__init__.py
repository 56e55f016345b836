"""Domains: kinds of corpora, each with a loader of its own and the answers that questions may ask for."""

from context_agent.synth_data.domains.registry import Domain, Loader, Positives, TruthType, domain_names, load_domain

__all__ = ["Domain", "Loader", "Positives", "TruthType", "domain_names", "load_domain"]
