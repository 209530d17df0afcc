"""Public functions of the release side, the studies and the partition refuse junk by the parameter's name."""

import math
import os
import re
import tempfile

import numpy as np
import pandas as pd
import pytest

import blockrr as br
from blockrr.privacy.advise import predict
from blockrr.privacy.audit import Audit, epsilon_lower_bound, samples_needed
from blockrr.privacy.optimal import best_sigma, retention, tradeoff
from blockrr.privacy.partition import Partition, check_settings, partition_by_weight, weight_matrix
from blockrr.privacy.program import solve_program
from blockrr.study.paper_tables import compare_tables, findings, from_classes, repairs, tally

NAN, INF = math.nan, math.inf
JUNK = {
    "None": None,
    "word": "x",
    "digits": "0.5",
    "bytes": b"x",
    "nan": NAN,
    "inf": INF,
    "-inf": -INF,
    "-1": -1,
    "1.5": 1.5,
    "True": True,
    "1j": 1j,
    "[]": [],
    "{}": {},
    "object": object(),
    "[1, 2]": [1, 2],
    "2 x 2": np.eye(2),
    "10**400": 10**400,
}
E3, F, M, P = np.eye(3), br.frontier([5, 3, 1], 1), br.rr(3, 1), [1, 2, 3]
TWO = Partition((0,), (1,))
REPORT = Audit(0.0, 0.95, 1, (), (0, 1), (0, 0), (1, 1))
CHECKS = compare_tables()
OUT = br.release(["a", "b"] * 50, 1, ["a", "b"], "rr")
HALVES = np.full((100, 2), 0.5)
SETS = br.subset_response(6, 0.5)
KEY = br.RowKey(bytes(range(32)))
FOLDER = tempfile.mkdtemp()  # nothing must be written there

# parameter, call, the junk that is legitimate there ("; " between)
CASES = {
    "solve_program weights": ("weights", lambda v: solve_program(v, 1), "2 x 2"),
    "solve_program epsilon": ("epsilon", lambda v: solve_program(E3, v), "inf; 1.5"),
    "solve_program floor": ("floor", lambda v: solve_program(E3, 1, floor=v), ""),
    "solve_program average": ("average", lambda v: solve_program(E3, 1, average=v), ""),
    "solve_program fixed": ("fixed", lambda v: solve_program(E3, 1, fixed=v), "None"),
    "retention mechanism": ("mechanism", retention, ""),
    "tradeoff mechanism": ("mechanism", lambda v: tradeoff(v, P), ""),
    "tradeoff prior": ("prior", lambda v: tradeoff(M, v), ""),
    "frontier prior": ("prior", lambda v: br.frontier(v, 1), "[1, 2]"),
    "frontier epsilon": ("epsilon", lambda v: br.frontier(P, v), "inf; 1.5"),
    "Frontier.levels floor": ("floor", F.levels, ""),
    "Frontier.point floor": ("floor", F.point, ""),
    "Frontier.accuracy_at average": ("average", F.accuracy_at, ""),
    "Frontier.gap mechanism": ("mechanism", F.gap, ""),
    "Frontier.plot against": ("against", lambda v: F.plot(against=v), ""),
    "best_sigma prior": ("prior", lambda v: best_sigma(v, 1), "[1, 2]"),
    "best_sigma epsilon": ("epsilon", lambda v: best_sigma(P, v), "inf; 1.5"),
    "optimal_rr prior": ("prior", lambda v: br.optimal_rr(v, 1, 0), "[1, 2]"),
    "optimal_rr epsilon": ("epsilon", lambda v: br.optimal_rr(P, v, 0), "inf; 1.5"),
    "optimal_rr floor": ("floor", lambda v: br.optimal_rr(P, 1, v), ""),
    "optimal_rr labels": ("labels|prior", lambda v: br.optimal_rr(P, 1, 0.1, labels=v), "None"),
    "optimal_rr leftover": ("leftover", lambda v: br.optimal_rr(P, 1, 0.1, leftover=v), ""),
    "predict mechanism": ("mechanism", lambda v: predict(v, P), ""),
    "predict prior": ("prior", lambda v: predict(M, v), ""),
    "predict goal": ("goal", lambda v: predict(M, P, v), ""),
    "predict rows": ("rows", lambda v: predict(M, P, rows=v), "1.5"),
    "advise prior": ("prior", lambda v: br.advise(v, 1), "[1, 2]"),
    "advise epsilon": ("epsilon", lambda v: br.advise(P, v), "inf; 1.5; [1, 2]"),
    "advise goal": ("goal", lambda v: br.advise(P, 1, v), ""),
    "advise n_prior": ("n_prior", lambda v: br.advise(P, 1, n_prior=v), "None; 1.5"),
    "advise rows": ("rows", lambda v: br.advise(P, 1, rows=v), "None; 1.5"),
    "advise epsilon_prior, public": ("epsilon_prior", lambda v: br.advise(P, 1, epsilon_prior=v), "None; inf; 1.5"),
    "advise epsilon_prior": ("epsilon_prior", lambda v: br.advise(P, 1, n_prior=50, epsilon_prior=v), "None; inf; 1.5"),
    "advise labels": ("labels|prior", lambda v: br.advise(P, 1, labels=v), "None"),
    "advise menu": ("menu", lambda v: br.advise(P, 1, menu=v), "None"),
    "advise menu, entry": ("menu", lambda v: br.advise(P, 1, menu=[v]), ""),
    "advise menu, method": ("menu", lambda v: br.advise(P, 1, menu=[(v, {})]), ""),
    "advise menu, settings": ("menu", lambda v: br.advise(P, 1, menu=[("rr", {}), ("optimal_rr", v)]), ""),
    "advise menu, setting of rr": ("menu", lambda v: br.advise(P, 1, menu=[("rr", {"sigma": v})]), ""),
    "advise menu, floor": ("menu", lambda v: br.advise(P, 1, menu=[("optimal_rr", {"floor": v})]), ""),
    "advise menu, sigma": ("menu", lambda v: br.advise(P, 1, menu=[("block_rr", {"sigma": v, "l": 1})]), "inf; 1.5"),
    "advise menu, l": ("menu", lambda v: br.advise(P, 1, menu=[("block_rr", {"sigma": 1.0, "l": v})]), "10**400"),
    "epsilon_lower_bound hits": ("hits", lambda v: epsilon_lower_bound(v, (10, 10)), "[1, 2]"),
    "epsilon_lower_bound one of hits": ("hits", lambda v: epsilon_lower_bound((v, 1), (10, 10)), "[1, 2]"),
    "epsilon_lower_bound trials": ("trials|hits", lambda v: epsilon_lower_bound((1, 1), v), "[1, 2]"),
    "epsilon_lower_bound confidence": ("confidence", lambda v: epsilon_lower_bound((1, 1), (9, 9), v), ""),
    "audit mechanism": ("mechanism", lambda v: br.audit(v, 2, samples=100), ""),
    "audit labels": ("labels", lambda v: br.audit(M, labels=v, samples=100), "None; [1, 2]"),
    "audit event": ("event", lambda v: br.audit(M, event=v, samples=100), "None; [1, 2]"),
    "audit samples": ("samples", lambda v: br.audit(M, samples=v), "10**400"),
    "audit confidence": ("confidence", lambda v: br.audit(M, confidence=v, samples=100), ""),
    "audit tests": ("tests", lambda v: br.audit(M, tests=v, samples=100), "10**400"),
    "audit seed": ("seed", lambda v: br.audit(M, seed=v, samples=100), "None; [1, 2]; 10**400"),
    "Audit.refutes epsilon": ("epsilon", REPORT.refutes, "inf; 1.5"),
    "samples_needed epsilon": ("epsilon", lambda v: samples_needed(v, 0.4), "1.5"),
    "samples_needed gap": ("gap", lambda v: samples_needed(1, v), ""),
    "samples_needed n_labels": ("n_labels", lambda v: samples_needed(1, 0.5, v), "10**400"),
    "samples_needed confidence": ("confidence", lambda v: samples_needed(1, 0.5, confidence=v), ""),
    "samples_needed power": ("power", lambda v: samples_needed(1, 0.5, power=v), ""),
    "samples_needed chosen": ("chosen", lambda v: samples_needed(1, 0.5, chosen=v), "True"),
    "Partition majority": ("majority", lambda v: Partition(v, (0,)), "[1, 2]"),
    "Partition minority": ("minority|majority and minority", lambda v: Partition((0,), v), "[1, 2]"),
    "Partition dominant": ("dominant", lambda v: Partition((0,), (1,), v), "[]"),
    "Partition outputs": ("outputs", lambda v: Partition((0,), (1,), (), v), "None"),
    "Partition neighbours": ("neighbours", lambda v: Partition((0,), (1,), (), None, v), "None"),
    "Partition one of neighbours": ("neighbours", lambda v: Partition((0,), (1,), (), None, [v, v]), ""),
    "Partition.near y": ("y", TWO.near, ""),
    "weight_matrix prior": ("prior", lambda v: weight_matrix(v, 1), "[1, 2]"),
    "weight_matrix sigma": ("sigma", lambda v: weight_matrix(P, v), "inf; 1.5"),
    "check_settings sigma": ("sigma", lambda v: check_settings(v, 1), "inf; 1.5"),
    "check_settings l": ("l", lambda v: check_settings(1.0, v), "10**400"),
    "partition_by_weight prior": ("prior", lambda v: partition_by_weight(v, 1.0), "[1, 2]"),
    "partition_by_weight sigma": ("sigma", lambda v: partition_by_weight(P, v), "inf; 1.5"),
    "partition_by_weight l": ("l", lambda v: partition_by_weight(P, 1.0, v), "10**400"),
    "from_classes row": ("row", from_classes, "[1, 2]"),
    "from_classes row, weighted": ("row", lambda v: from_classes(v, "cifar10_1"), ""),
    "from_classes dataset": ("dataset", lambda v: from_classes([1] * 10, v), "None"),
    "findings frame": ("frame", findings, ""),
    "findings kinds": ("frame", lambda v: findings(pd.DataFrame({"kind": [v], "difference": [0]})), ""),
    "findings columns": ("frame", lambda v: findings(CHECKS.drop(columns="difference")), ""),
    "tally frame": ("frame", tally, ""),
    "tally columns": ("frame", lambda v: tally(CHECKS.drop(columns="kind")), ""),
    "repairs kind": ("kind", lambda v: repairs(v, "cifar10_1", 0.6, method="rr"), ""),
    "repairs dataset": ("dataset", lambda v: repairs("overall", v, 0.6, method="rr"), ""),
    "repairs epsilon": ("epsilon", lambda v: repairs("overall", "cifar10_1", v, method="rr"), "inf"),
    "repairs method": ("method", lambda v: repairs("overall", "cifar10_1", 0.6, method=v), ""),
    "release method": ("method", lambda v: br.release([0, 1], 1, 2, v), ""),
    "release size": ("size", lambda v: br.release([0, 1] * 50, 1, 6, "subset", size=v), "None"),
    "release dataset_id": ("dataset_id|ledger", lambda v: br.release([0, 1], 1, 2, "rr", dataset_id=v), "None"),
    "Release.frequencies by": ("by", lambda v: OUT.frequencies(by=v), "None"),
    "Release.frequencies level": ("level", lambda v: OUT.frequencies(level=v), ""),
    "Release.save path": ("path", OUT.save, ""),
    "Release.save column": ("column", lambda v: OUT.save(f"{FOLDER}/o.csv", v), "word; digits"),
    "Release.save separator": ("separator", lambda v: OUT.save(f"{FOLDER}/o.csv", separator=v), "word; digits"),
    "load_release path": ("path", br.load_release, ""),
    "Mechanism.likelihood": ("released|labels", M.likelihood, "[]; [1, 2]"),
    "SetMechanism.likelihood": ("released", SETS.likelihood, "[]; [1, 2]"),
    "privatize key": ("key", lambda v: M.privatize([0, 1], key=v, rows=[0, 1]), ""),
    "privatize rows": ("rows", lambda v: M.privatize([0, 1], key=KEY, rows=v), "[1, 2]"),
    "new_key path": ("path", br.new_key, "word; digits"),
    "explain epsilon": ("epsilon", lambda v: br.explain(v, 3), "inf; 1.5; [1, 2]; digits"),
    "explain domain": ("domain", lambda v: br.explain(1, v), "[1, 2]"),
    "explain prior": ("prior", lambda v: br.explain(1, 3, v), "None"),
    "explain rows": ("rows", lambda v: br.explain(1, 3, rows=v), "None; 10**400"),
    "explain error": ("error", lambda v: br.explain(1, 3, error=v), ""),
    "subset_response epsilon": ("epsilon", lambda v: br.subset_response(6, v), "inf; 1.5"),
    "subset_response size": ("size", lambda v: br.subset_response(6, 1, size=v), "None"),
    "subset_response codebook": ("codebook", lambda v: br.subset_response(6, 1, codebook=v), "None"),
    "optimal_subsets epsilon": ("epsilon", lambda v: br.optimal_subsets(6, v), "inf; 1.5"),
    "optimal_subsets prior": ("prior", lambda v: br.optimal_subsets(3, 1, v), "None"),
    "best_size n_labels": ("n_labels", lambda v: br.best_size(v, 1), "10**400"),
    "best_size epsilon": ("epsilon", lambda v: br.best_size(6, v), "inf; 1.5"),
    "information mechanism": ("mechanism", lambda v: br.information(v, P), ""),
    "evaluate level": ("level", lambda v: br.evaluate(HALVES, OUT, level=v), ""),
    "evaluate mechanism": ("mechanism", lambda v: br.evaluate(HALVES, ["a"] * 100, v), ""),
    "conformal_sets coverage": ("coverage", lambda v: br.conformal_sets(HALVES, OUT, coverage=v), ""),
    "conformal_sets confidence": ("confidence", lambda v: br.conformal_sets(HALVES, OUT, confidence=v), "None"),
    "released_scorer mechanism": ("mechanism", br.released_scorer, ""),
    "released_scorer score": ("score", lambda v: br.released_scorer(M, v), ""),
    "information prior": ("prior", lambda v: br.information(M, v), ""),
}


@pytest.mark.filterwarnings("ignore:l = ")
@pytest.mark.parametrize("case", CASES)
def test_junk_is_refused_by_name(case):
    name, call, legitimate = CASES[case]
    for what, junk in JUNK.items():
        if what in legitimate.split("; "):
            continue
        with pytest.raises((ValueError, TypeError)) as refused:
            call(junk)
        text = str(refused.value)
        assert re.match(rf"({name})(:| )", text), (what, text)  # the parameter comes first, not a message from inside
        assert len(text) > len(name) + 10, (what, text)
    assert not os.listdir(FOLDER)


def test_what_is_legitimate_is_taken():
    "The table above excuses nothing by mistake."
    for _, call, legitimate in CASES.values():
        for what in {"1.5", "None", "inf", "2 x 2"} & set(legitimate.split("; ")):
            call(JUNK[what])
