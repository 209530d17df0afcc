"""Label differential privacy by block randomised response; see https://blockrr.github.io/blockrr."""
__version__ = "0.2.0"

from blockrr.privacy.advise import advise
from blockrr.privacy.audit import audit
from blockrr.privacy.bins import rr_on_bins
from blockrr.privacy.caution import ReleaseWarning
from blockrr.privacy.classification import RandomizedResponse, best_k, block_rr, rr, rr_with_prior
from blockrr.privacy.codebook import Codebook
from blockrr.privacy.conformal import conformal_sets
from blockrr.privacy.evaluate import evaluate
from blockrr.privacy.explain import explain
from blockrr.privacy.handover import load_release
from blockrr.privacy.integers import Certificate
from blockrr.privacy.interval import rp_with_prior
from blockrr.privacy.labels import Domain
from blockrr.privacy.ledger import Ledger
from blockrr.privacy.mechanism import Mechanism, certify
from blockrr.privacy.optimal import frontier, optimal_rr
from blockrr.privacy.optimal_subsets import information, optimal_subsets
from blockrr.privacy.partition import Partition, partition_by_weight, weight_matrix
from blockrr.privacy.prior import estimate_prior
from blockrr.privacy.release import Release, release
from blockrr.privacy.rows import RowKey, new_key
from blockrr.privacy.scorers import released_scorer
from blockrr.privacy.sets import SetMechanism
from blockrr.privacy.stages import prior_by_em, two_stage
from blockrr.privacy.subsets import best_size, subset_response

__all__ = [
    "Certificate",
    "Codebook",
    "Domain",
    "Ledger",
    "Mechanism",
    "Partition",
    "RandomizedResponse",
    "Release",
    "ReleaseWarning",
    "RowKey",
    "SetMechanism",
    "advise",
    "audit",
    "best_k",
    "best_size",
    "block_rr",
    "certify",
    "conformal_sets",
    "estimate_prior",
    "evaluate",
    "explain",
    "frontier",
    "information",
    "load_release",
    "new_key",
    "optimal_rr",
    "optimal_subsets",
    "partition_by_weight",
    "prior_by_em",
    "release",
    "released_scorer",
    "rp_with_prior",
    "rr",
    "rr_on_bins",
    "rr_with_prior",
    "subset_response",
    "two_stage",
    "weight_matrix",
]
