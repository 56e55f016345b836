"""Domains: kinds of corpora, each with its own loader and the answer types that questions may ask for."""

from context_agent.synth_data.domains.registry import Domain, Loader, Positives, TruthType, domain_names, load_domain

__all__ = ["Domain", "Loader", "Positives", "TruthType", "domain_names", "load_domain"]
