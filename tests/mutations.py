"""Applies one small mutation at a time to a copy of the sources, and checks that a test fails.

    python tests/mutations.py               all mutations, two at a time
    python tests/mutations.py adam secure   those with one of these words in their name or file
    python tests/mutations.py --list        prints their names

A mutation that survives is a hole in the tests. `make test-all` runs this script; pytest does not collect it.

The table names files and text of the sources on purpose: whoever moves or changes such a line updates the table. The
script ends with an error if a text does not occur exactly once in its file. To add a mutation, add a row.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue


@dataclass(frozen=True)
class Mutation:
    """One change of the sources, and the tests that must notice it."""

    what: str  # the number of an invariant or the name of a rule, and what the mutation breaks
    file: str  # under src/accord
    old: str  # occurs exactly once in the file
    new: str
    tests: tuple[str, ...]  # test files or single tests, under tests/: as few as must notice it
    environment: str = ""  # "flower": they run in .venvs/test-flower

    def __str__(self) -> str:
        return f"{self.what} ({self.file})"


MUTATIONS = (
    # What must stay true, by number.
    Mutation(
        what="9 no pickle, no code in data: a run folder's model is imported",
        file="rules/registry.py",
        old="    if folder is None:\n",
        new="    if False:\n",
        tests=("runs/test_folders_are_data.py",),
    ),
    Mutation(
        what="10 a mistake is exit code 2: it is 1",
        file="cli/main.py",
        old="line, code = message, 2",
        new="line, code = message, 1",
        tests=("cli/test_endings.py::test_a_name_that_is_not_utf8_is_refused",),
    ),
    Mutation(
        what="1 delta is client minus server: a client reports server minus client",
        file="engines/sequential.py",
        old="delta, moved = (w - start)[: job.layout.size]",
        new="delta, moved = (start - w)[: job.layout.size]",
        tests=("rules/test_oracles.py::test_fedsgd_is_gradient_descent_on_the_average",),
    ),
    Mutation(
        what="1 delta is client minus server: the server subtracts",
        file="training/server_step.py",
        old="vector, buffers = vector + change, ",
        new="vector, buffers = vector - change, ",
        tests=("rules/test_oracles.py::test_fedsgd_is_gradient_descent_on_the_average",),
    ),
    Mutation(
        what="1 delta is client minus server: the server subtracts the change of buffers",
        file="training/server_step.py",
        old="vector + change, buffers + moved",
        new="vector + change, buffers - moved",
        tests=("training/test_fit.py::test_buffers_are_averaged_by_samples_and_never_masked",),
    ),
    Mutation(
        what="1 delta is client minus server: buffers move the other way",
        file="core/layout.py",
        old="torch.zeros_like(end), end - start)",
        new="torch.zeros_like(end), start - end)",
        tests=("training/test_fit.py::test_buffers_are_averaged_by_samples_and_never_masked",),
    ),
    Mutation(
        what="1 delta is client minus server: the update is not divided by the weights",
        file="rules/averages/mean.py",
        old='return total["delta"] / total["weight"], state',
        new='return total["delta"], state',
        tests=("rules/test_combine.py::test_mean_by_samples_and_uniform_by_hand",),
    ),
    Mutation(
        what="2 votes are whole numbers: tau is the float and not its decimal",
        file="rules/masks/votes.py",
        old="Fraction(repr(float(share)))",
        new="Fraction(float(share))",
        tests=("rules/test_votes.py::test_thresholds_are_exact_where_floats_are_not",),
    ),
    Mutation(
        what="2 votes are whole numbers: votes are compared as floats",
        file="rules/masks/votes.py",
        old="return net >= least.to(net.dtype)",
        new="return net / counts >= float(share)",
        tests=(("rules/test_tau_fractions.py::test_a_float_is_the_decimal_and_misses_ties_that_a_fraction_reaches"),),
    ),
    Mutation(
        what="2 votes are whole numbers: a tie at tau does not pass",
        file="rules/masks/votes.py",
        old="return net >= least.to(net.dtype)",
        new="return net > least.to(net.dtype)",
        tests=("rules/test_votes.py::test_soft_mask_by_hand",),
    ),
    Mutation(
        what="2 votes are whole numbers: the threshold is rounded down",
        file="rules/masks/votes.py",
        old="least = -(-counts.round().long() * share.numerator // share.denominator)",
        new="least = counts.round().long() * share.numerator // share.denominator",
        tests=("rules/test_votes.py::test_a_tie_at_exactly_tau_passes_whole_in_any_client_order",),
    ),
    Mutation(
        what="2 votes are whole numbers: the threshold in Python is rounded down",
        file="rules/masks/votes.py",
        old="return math.ceil(as_written(tau) * count)",
        new="return math.floor(as_written(tau) * count)",
        tests=("rules/test_votes.py::test_ties_at_exactly_tau_pass_for_every_cohort_and_every_net_vote",),
    ),
    Mutation(
        what="2 votes are whole numbers: a client votes with its update",
        file="core/record.py",
        old="accumulator.add_(x[..., k, part].sign())",
        new="accumulator.add_(x[..., k, part])",
        tests=("rules/test_votes.py::test_soft_mask_by_hand",),
    ),
    Mutation(
        what="2 votes are whole numbers: the only client votes with its update",
        file="core/record.py",
        old='return Field(x[..., 0, :].to(wide).sign(), kind="votes")',
        new='return Field(x[..., 0, :].to(wide), kind="votes")',
        tests=("rules/test_votes.py::test_bit_equal_to_averaging_where_the_mask_has_nothing_to_say",),
    ),
    Mutation(
        what="2 votes are whole numbers: a scheduled tau is not rounded",
        file="rules/masks/votes.py",
        old="as_written(round(tau.at(number), 12) if",
        new="as_written(tau.at(number) if",
        tests=("rules/test_mask_variants.py::test_a_schedule_gives_round_numbers_where_a_person_would",),
    ),
    Mutation(
        what="3 draws are keyed: the purpose does not count",
        file="core/draws.py",
        old='(seed, purpose, *path)))}]"',
        new='(seed, *path)))}]"',
        tests=("core/test_draws.py::test_draws_are_frozen",),
    ),
    Mutation(
        what="3 draws are keyed: the seed does not count",
        file="core/draws.py",
        old='(seed, purpose, *path)))}]"',
        new='(purpose, *path)))}]"',
        tests=("core/test_draws.py::test_draws_are_frozen",),
    ),
    Mutation(
        what="3 draws are keyed: a stream goes on where the last one ended",
        file="core/draws.py",
        old='"buffer_pos": 4,',
        new='"buffer_pos": 3,',
        tests=("core/test_draws.py::test_draws_are_frozen",),
    ),
    Mutation(
        what="3 draws are keyed: cohorts are the same in every round",
        file="training/cohort.py",
        old='seed, "sample", round)]',
        new='seed, "sample")]',
        tests=("training/test_cohort.py::test_c_of_n_without_repetition_and_anew_each_round",),
    ),
    Mutation(
        what="3 draws are keyed: all clients have the same conditions",
        file="training/cohort.py",
        old='seed, "conditions", round, client)',
        new='seed, "conditions", round)',
        tests=("training/test_cohort.py::test_conditions_hold_at_their_rates",),
    ),
    Mutation(
        what="3 draws are keyed: a client has the same conditions in every round",
        file="training/cohort.py",
        old='seed, "conditions", round, client)',
        new='seed, "conditions", client)',
        tests=("training/test_cohort.py::test_conditions_hold_at_their_rates",),
    ),
    Mutation(
        what="3 draws are keyed: who can be reached is the same in every round",
        file="training/cohort.py",
        old='seed, "available", round)',
        new='seed, "available")',
        tests=(("training/test_cohort.py::test_a_clients_conditions_are_drawn_anew_each_round_and_apart_from_others"),),
    ),
    Mutation(
        what="3 draws are keyed: all clients shuffle alike",
        file="engines/contract.py",
        old="paths += [(round, member.client, epoch) for",
        new="paths += [(round, epoch) for",
        tests=("engines/test_contract.py::test_every_client_round_and_epoch_has_an_order_of_its_own",),
    ),
    Mutation(
        what="3 draws are keyed: a client shuffles alike in all rounds",
        file="engines/contract.py",
        old="paths += [(round, member.client, epoch) for",
        new="paths += [(member.client, epoch) for",
        tests=("engines/test_contract.py::test_every_client_round_and_epoch_has_an_order_of_its_own",),
    ),
    Mutation(
        what="3 draws are keyed: a client shuffles alike in all epochs",
        file="engines/contract.py",
        old="paths += [(round, member.client, epoch) for",
        new="paths += [(round, member.client) for",
        tests=("engines/test_contract.py::test_every_client_round_and_epoch_has_an_order_of_its_own",),
    ),
    Mutation(
        what="3 draws are keyed: dropout is the same at all clients",
        file="engines/sequential.py",
        old='"dropout", work.round, member.client, number)',
        new='"dropout", work.round, number)',
        tests=("engines/test_contract.py::test_no_step_of_any_client_or_round_draws_what_another_did",),
    ),
    Mutation(
        what="3 draws are keyed: dropout is the same in all rounds",
        file="engines/sequential.py",
        old='"dropout", work.round, member.client, number)',
        new='"dropout", member.client, number)',
        tests=("engines/test_contract.py::test_no_step_of_any_client_or_round_draws_what_another_did",),
    ),
    Mutation(
        what="3 draws are keyed: dropout is the same in all steps",
        file="engines/sequential.py",
        old='"dropout", work.round, member.client, number)',
        new='"dropout", work.round, member.client)',
        tests=("engines/test_contract.py::test_no_step_of_any_client_or_round_draws_what_another_did",),
    ),
    Mutation(
        what="3 draws are keyed: lanes draw alike in all steps",
        file="engines/vectorised/sending.py",
        old="lane.work.round, lane.member.client, int(number))",
        new="lane.work.round, lane.member.client)",
        tests=("engines/test_engines_agree.py::test_every_kind_of_layer[dropout-fedavg + gma]",),
    ),
    Mutation(
        what="3 draws are keyed: random models draw alike at all clients",
        file="engines/sequential.py",
        old='"torch", work.round, member.client)',
        new='"torch", work.round)',
        tests=("engines/test_contract.py::test_no_step_of_any_client_or_round_draws_what_another_did",),
    ),
    Mutation(
        what="3 draws are keyed: a purpose is renamed",
        file="engines/contract.py",
        old='job.seed, "batches", paths',
        new='job.seed, "minibatches", paths',
        tests=("test_bits.py::test_bits_are_those_stored[fedavg-sequential]",),
    ),
    Mutation(
        what="3 draws are keyed: a purpose of dropout is renamed",
        file="engines/sequential.py",
        old='job.seed, "dropout", work',
        new='job.seed, "drop", work',
        tests=("test_bits.py::test_bits_are_those_stored[fedavg-sequential]",),
    ),
    Mutation(
        what="3 draws are keyed: the same noise in every seed",
        file="privacy/dp.py",
        old='draws.device_key(round.seed, f"privacy',
        new='draws.device_key(0, f"privacy',
        tests=("privacy/test_dp.py::test_noise_has_the_stated_deviation_and_counts_are_fixed",),
    ),
    Mutation(
        what="3 draws are keyed: augmentation is the same at all clients",
        file="engines/sequential.py",
        old='"augment", work.round, member.client)',
        new='"augment", work.round)',
        tests=("engines/test_contract.py::test_no_step_of_any_client_or_round_draws_what_another_did",),
    ),
    Mutation(
        what="4 engines agree: lanes count a short batch as a whole one",
        file="engines/vectorised/planning.py",
        old="share[short] = np.where(np.arange(width) < count, 1.0 / np.maximum(count, 1.0), 0.0)",
        new="share[short] = np.where(np.arange(width) < count, 1.0 / width, 0.0)",
        tests=("engines/test_planning.py::test_what_fills_up_is_the_lanes_own_and_has_no_share",),
    ),
    Mutation(
        what="4 engines agree: lanes forget the round's rate",
        file="engines/vectorised/sending.py",
        old='RATES = {"weight_decay": 0.0, "clip": math.inf, "mu": 0.0}',
        new='RATES = {"weight_decay": 0.0, "clip": math.inf}',
        tests=("engines/test_engines_agree.py::test_every_rule",),
    ),
    Mutation(
        what="4 engines agree: shards of workers are added in another order",
        file="engines/processes.py",
        old="            for task in tasks:\n                while",
        new="            for task in reversed(tasks):\n                while",
        tests=("engines/test_processes.py::test_every_algorithm_gives_the_same_bits",),
    ),
    Mutation(
        what="4 engines agree: a cohort is one shard",
        file="engines/contract.py",
        old="min(SHARDS, len(cohort)) + 1).round()",
        new="min(1, len(cohort)) + 1).round()",
        tests=("engines/test_contract.py::test_a_cohort_is_summed_in_sixteen_consecutive_parts",),
    ),
    Mutation(
        what="4 engines agree: parts are added in the opposite order",
        file="engines/contract.py",
        old="return Part(added(self.record, other.record), self.rows + other.rows,",
        new="return Part(added(other.record, self.record), other.rows + self.rows,",
        tests=("engines/test_contract.py::test_parts_are_added_in_their_order",),
    ),
    Mutation(
        what="4 engines agree: clients are added in the opposite order",
        file="core/record.py",
        old="for k in range(x.shape[-2]):\n            row",
        new="for k in reversed(range(x.shape[-2])):\n            row",
        tests=("engines/test_contract.py::test_clients_are_added_in_their_order",),
    ),
    Mutation(
        what="4 engines agree: runs that step as one share the first one's buffers",
        file="training/server_step.py",
        old="torch.stack([p.vector for p in before]), torch.stack([p.buffers for p in before])",
        new="torch.stack([p.vector for p in before]), torch.stack([before[0].buffers for p in before])",
        tests=("experiments/test_lockstep.py::test_batch_norm_agrees_within_rounding",),
    ),
    Mutation(
        what="4 engines agree: runs that step as one share the first one's model",
        file="training/server_step.py",
        old="torch.stack([p.vector for p in before]), torch",
        new="torch.stack([before[0].vector for p in before]), torch",
        tests=(
            (
                "experiments/test_lockstep.py::"
                "test_runs_of_one_algorithm_are_added_up_and_step_as_one_to_the_bits_of_each_alone"
            ),
        ),
    ),
    Mutation(
        what="4 engines agree: a run in a batch has the weights of another",
        file="engines/vectorised/reporting.py",
        old="return Reports(reports.delta[run], reports.weight[run], reports",
        new="return Reports(reports.delta[run], reports.weight[0], reports",
        tests=("experiments/test_lockstep.py::test_a_run_with_broken_clients_harms_nobody_else",),
    ),
    Mutation(
        what="5 kill and resume: a file is renamed before it is synced",
        file="core/files.py",
        old="os.fsync(handle.fileno())",
        new="pass",
        tests=("runs/test_run_folder.py::test_a_file_is_synced_before_it_has_its_name_and_the_name_after",),
    ),
    Mutation(
        what="5 kill and resume: a file's name is not synced",
        file="core/files.py",
        old="        sync_folder(path.parent)",
        new="        pass",
        tests=("runs/test_run_folder.py::test_a_file_is_synced_before_it_has_its_name_and_the_name_after",),
    ),
    Mutation(
        what="5 kill and resume: a file is written in place",
        file="core/files.py",
        old='beside = path.with_name(f".{path.name}.{os.getpid()}.part")',
        new="beside = path",
        tests=("runs/test_run_folder.py::test_a_write_that_fails_leaves_the_old_file",),
    ),
    Mutation(
        what="5 kill and resume: state.json is written first",
        file="runs/folder.py",
        old=(
            '        self._checkpoints.add({"schema": SCHEMA, "run": self.path.name, "tensors": name, '
            "**numbers, **vouched})\n"
        ),
        new=(
            '        (self.path / name).unlink(); self._checkpoints.add({"schema": SCHEMA, "run": '
            'self.path.name, "tensors": name, **numbers, **vouched}); write_whole(self.path / name, '
            "content)\n"
        ),
        tests=("runs/test_run_folder.py::test_whatever_a_checkpoint_names_is_on_disk_at_any_moment",),
    ),
    Mutation(
        what="5 kill and resume: the old checkpoint is deleted before state.json is written",
        file="runs/checkpoints.py",
        old='write_sealed(self._folder / "older.json", self.older)',
        new='(self._folder / self.older["tensors"]).unlink()',
        tests=("runs/test_run_folder.py::test_whatever_a_checkpoint_names_is_on_disk_at_any_moment",),
    ),
    Mutation(
        what="5 kill and resume: rows are not synced before a checkpoint vouches for them",
        file="runs/rows.py",
        old="                if sync:\n",
        new="                if False:\n",
        tests=("runs/test_run_folder.py::test_whatever_a_checkpoint_names_is_on_disk_at_any_moment",),
    ),
    Mutation(
        what="5 kill and resume: what clients remember is not synced",
        file="training/client_store.py",
        old="for file in sorted(self._unsynced):",
        new="for file in sorted(set()):",
        tests=("training/test_client_store.py::test_states_are_synced_before_a_checkpoint_may_name_them",),
    ),
    Mutation(
        what="5 kill and resume: what clients remember goes before a checkpoint names what follows",
        file="training/client_store.py",
        old="self._folder is None or self._current[client] != self._committed.get(client)",
        new="True",
        tests=("training/test_client_store.py::test_what_was_not_committed_is_forgotten",),
    ),
    Mutation(
        what="5 kill and resume: rows after the checkpoint stay",
        file="runs/folder.py",
        old='b"".join(islice(lines_of(path), reached))',
        new='b"".join(lines_of(path))',
        tests=("runs/test_run_folder.py::test_a_run_stopped_anywhere_and_resumed_equals_a_straight_one",),
    ),
    Mutation(
        what="5 kill and resume: a resumed run forgets its best model",
        file="training/checkpoint.py",
        old='best, score = kept.pop("best", (None, self.best_score))',
        new="best, score = (None, self.best_score)",
        tests=("runs/test_run_folder.py::test_a_run_stopped_anywhere_and_resumed_equals_a_straight_one",),
    ),
    Mutation(
        what="5 kill and resume: a resumed run forgets the server's moments",
        file="training/checkpoint.py",
        old='return Progress(numbers["round"], here["vector"], here["buffers"], memory, best',
        new='return Progress(numbers["round"], here["vector"], here["buffers"], self.memory, best',
        tests=("runs/test_run_folder.py::test_a_run_stopped_anywhere_and_resumed_equals_a_straight_one",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: numbers are standardised by them too",
        file="data/standardise.py",
        old="*fed.train.values()]).split",
        new="*fed.train.values(), *fed.unseen.values()]).split",
        tests=("data/test_preparation.py::test_the_unseen_client_changes_nothing_of_the_preparation",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: held-out rows standardise too",
        file="data/standardise.py",
        old="*fed.train.values()]).split",
        new="*fed.train.values(), *fed.heldout.values()]).split",
        tests=("data/test_preparation.py::test_held_out_rows_change_nothing_of_the_preparation",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: categories and fill values are fitted to them too",
        file="data/preparation.py",
        old="rows = torch.cat([torch.zeros(0, dtype=torch.int64), *fed.train.values()])",
        new=("rows = torch.cat([torch.zeros(0, dtype=torch.int64), *fed.train.values(), *fed.unseen.values()])"),
        tests=("data/test_preparation.py::test_by_hand",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: classes that they alone have count",
        file="data/preparation.py",
        old="taking_part = torch.cat([*fed.train.values(), *fed.heldout.values()])",
        new=("taking_part = torch.cat([*fed.train.values(), *fed.heldout.values(), *fed.unseen.values()])"),
        tests=("data/test_preparation.py::test_bad_tables_get_a_sentence",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: the best model is chosen on them",
        file="training/checkpoint.py",
        old='reached = evaluation.score("heldout")',
        new='reached = evaluation.score("unseen")',
        tests=(
            "training/test_fit.py::test_unseen_clients_touch_nothing",
            "training/test_fit.py::test_the_best_held_out_model_is_kept",
        ),
    ),
    Mutation(
        what="6 unseen clients influence nothing: a run ends early by them",
        file="training/early_stopping.py",
        old='reached = evaluation.score("heldout")',
        new='reached = evaluation.score("unseen")',
        tests=("training/test_early_stopping.py::test_a_rise_by_hand",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: the held-out rule chooses a round by them",
        file="runs/selection.py",
        old='_best("held-out", "heldout")',
        new='_best("held-out", "unseen")',
        tests=("runs/test_evaluation.py::test_selection_rules_by_hand",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: those who are left out stay in training",
        file="data/unseen.py",
        old="train = {client: rows for client, rows in fed.train.items() if client not in unseen}",
        new="train = dict(fed.train)",
        tests=("data/test_unseen.py::test_clients_are_unseen_by_name_and_left_out_of_a_federation_alike",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: a study chooses the grid's point by them",
        file="studies/outcome.py",
        old='return "test" if rule == "oracle" else "heldout"',
        new='return "test" if rule == "oracle" else "unseen"',
        tests=("studies/test_studies.py::test_the_grids_point_is_chosen_by_held_out_data",),
    ),
    Mutation(
        what="6 unseen clients influence nothing: the best of an axis is chosen by them",
        file="studies/differences.py",
        old="_mean(result.figures[rule].of(judging_split(rule)))",
        new='_mean(result.figures[rule].of("test"))',
        tests=(
            ("studies/test_judge.py::test_best_of_an_axis_is_chosen_on_heldout_data_and_by_oracle_on_the_test_set"),
        ),
    ),
    Mutation(
        what="7 three-way evaluation: the out-of-sample gap the other way round",
        file="core/metrics.py",
        old='"train", "heldout")',
        new='"heldout", "train")',
        tests=("runs/test_evaluation.py::test_gaps_and_clients_without_samples",),
    ),
    Mutation(
        what="7 three-way evaluation: the participation gap the other way round",
        file="core/metrics.py",
        old='"heldout", "unseen")',
        new='"unseen", "heldout")',
        tests=("runs/test_evaluation.py::test_gaps_and_clients_without_samples",),
    ),
    Mutation(
        what="7 three-way evaluation: a gap is the sum",
        file="runs/evaluation.py",
        old="None if a is None or b is None else a - b",
        new="None if a is None or b is None else a + b",
        tests=("runs/test_evaluation.py::test_gaps_and_clients_without_samples",),
    ),
    Mutation(
        what="7 three-way evaluation: the mean by sample is that by client",
        file="runs/evaluation.py",
        old="_spread((sums.sum(1) / size).tolist(), sums / samples, smaller)",
        new="_spread((sums / samples).mean(1).tolist(), sums / samples, smaller)",
        tests=("runs/test_evaluation.py::test_means_over_samples_and_over_clients",),
    ),
    Mutation(
        what="7 three-way evaluation: the mean by client is weighted by samples",
        file="runs/evaluation.py",
        old="columns = np.column_stack([per_client.mean(1), worst,",
        new="columns = np.column_stack([[by_sample[0]] * len(worst), worst,",
        tests=("runs/test_evaluation.py::test_means_over_samples_and_over_clients",),
    ),
    Mutation(
        what="7 three-way evaluation: the worst client is the best",
        file="runs/evaluation.py",
        old="per_client.max(1) if smaller else per_client.min(1)",
        new="per_client.min(1) if smaller else per_client.max(1)",
        tests=("runs/test_evaluation.py::test_means_over_samples_and_over_clients",),
    ),
    Mutation(
        what="7 three-way evaluation: clients without samples count",
        file="runs/evaluation.py",
        old="{split: (of_split == split) & there for",
        new="{split: (of_split == split) for",
        tests=("runs/test_evaluation.py::test_means_over_samples_and_over_clients",),
    ),
    Mutation(
        what="7 three-way evaluation: the last ten rounds are eleven",
        file="runs/selection.py",
        old="if number > history[-1][0] - 10]",
        new="if number >= history[-1][0] - 10]",
        tests=("runs/test_evaluation.py::test_selection_rules_by_hand",),
    ),
    Mutation(
        what="7 three-way evaluation: the oracle among few rounds is not said to be one of few",
        file="runs/selection.py",
        old='some = rule == "oracle" and',
        new="some = False and",
        tests=("runs/test_evaluation.py::test_selection_rules_by_hand",),
    ),
    Mutation(
        what="7 three-way evaluation: a model that diverged is the best",
        file="core/metrics.py",
        old="            return -math.inf\n",
        new="            return math.inf\n",
        tests=("runs/test_evaluation.py::test_a_model_that_diverged_is_nobodys_choice",),
    ),
    Mutation(
        what="7 three-way evaluation: masks have no control",
        file="studies/choose.py",
        old='controlled = control in study.axes["rule"]',
        new="controlled = False",
        tests=("studies/test_choose.py::test_every_rule_has_as_many_rates_and_every_mask_its_control",),
    ),
    Mutation(
        what="8 fair comparisons: differences are not paired by seed",
        file="studies/differences.py",
        old="gaps = {seed: ours[seed] - theirs[seed] for",
        new="gaps = {seed: ours[seed] - statistics.fmean(theirs.values()) for",
        tests=("studies/test_studies.py::test_paired_differences_by_hand",),
    ),
    Mutation(
        what="8 fair comparisons: Holm's correction is missing",
        file="studies/statistics.py",
        old="np.arange(len(p), 0, -1)",
        new="np.ones(len(p))",
        tests=("studies/test_judge.py::test_holm_by_hand",),
    ),
    Mutation(
        what="8 fair comparisons: Holm's correction is not monotonic",
        file="studies/statistics.py",
        old="np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1))",
        new="np.asarray(p)[order] * np.arange(len(p), 0, -1)",
        tests=("studies/test_judge.py::test_holm_by_hand",),
    ),
    Mutation(
        what="8 fair comparisons: differences are called ahead without Holm's correction",
        file="studies/text.py",
        old="iter(holm([difference.interval.p for difference in tested]))",
        new="iter([difference.interval.p for difference in tested])",
        tests=("studies/test_judge.py::test_holm_by_hand",),
    ),
    Mutation(
        what="8 fair comparisons: an interval of 90 %",
        file="studies/statistics.py",
        old="t.ppf(0.5 + level / 2, freedom)",
        new="t.ppf(level, freedom)",
        tests=("studies/test_judge.py::test_one_cell_is_students_t",),
    ),
    Mutation(
        what="8 fair comparisons: one-sided p-values",
        file="studies/statistics.py",
        old="float(2 * t.sf(",
        new="float(t.sf(",
        tests=("studies/test_judge.py::test_one_cell_is_students_t",),
    ),
    Mutation(
        what="8 fair comparisons: seeds that cells share are not counted",
        file="studies/statistics.py",
        old="variance = over_cells + over_seeds\n",
        new="variance = over_cells if spare else over_seeds\n",
        tests=("studies/test_judge.py::test_a_pooled_verdict_by_hand",),
    ),
    Mutation(
        what="8 fair comparisons: masks have one rate",
        file="studies/choose.py",
        old='grids = {name: grid if name else {"train.lr": rates, **grid} for',
        new="grids = {name: grid for",
        tests=("studies/test_choose.py::test_every_rule_has_as_many_rates_and_every_mask_its_control",),
    ),
    Mutation(
        what="8 fair comparisons: a study compares rivals across places",
        file="studies/differences.py",
        old="if axis != study.compare)\n        by_place",
        new="if axis == study.compare)\n        by_place",
        tests=("studies/test_judge.py::test_the_end_of_a_grid_holds_back_whoever_alone_is_there",),
    ),
    Mutation(
        what="8 fair comparisons: accord compare subtracts the other way round",
        file="cli/compare.py",
        old="difference = paired(one, other)",
        new="difference = paired(other, one)",
        tests=("studies/test_studies.py::test_compare_says_it_in_a_sentence",),
    ),
    Mutation(
        what="9 no pickle, no code in data: an .npz file may hold pickles",
        file="data/readers/npz.py",
        old="allow_pickle=False",
        new="allow_pickle=True",
        tests=("runs/test_no_pickle.py",),
    ),
    Mutation(
        what="9 no pickle, no code in data: a run's tensors may be a pickle",
        file="runs/checksums.py",
        old=(
            '    except (OSError, SafetensorError) as error:\n        raise AccordError(f"{path} cannot '
            'be read ({error})") from None'
        ),
        new=(
            "    except (OSError, SafetensorError):\n        import torch\n\n        return "
            "torch.load(path, weights_only=False)"
        ),
        tests=("runs/test_no_pickle.py",),
    ),
    Mutation(
        what="9 no pickle, no code in data: weights to start from may be a pickle",
        file="models/__init__.py",
        old=(
            '    except (OSError, SafetensorError) as error:\n        raise AccordError(f"{path} cannot '
            'be read as safetensors: {error}") from None'
        ),
        new=(
            "    except (OSError, SafetensorError):\n        import torch\n\n        return "
            "torch.load(path, weights_only=False)"
        ),
        tests=("runs/test_no_pickle.py",),
    ),
    Mutation(
        what="9 no pickle, no code in data: an array of Python objects is skipped and not refused",
        file="data/readers/npz.py",
        old='if "Object arrays" not in str(error):\n                        raise\n',
        new='if "Object arrays" in str(error):\n                        continue\n',
        tests=("data/test_npz.py::test_spoilt_arrays_get_a_sentence",),
    ),
    Mutation(
        what="9 no pickle, no code in data: reading a run folder imports what it names",
        file="runs/settings.py",
        old='        sections["algorithm"] = as_tables(',
        new=(
            '        for part in form.get("algorithm", {}).values():\n            if isinstance(part, dict) and ":" in '
            'str(part.get("name")):\n                __import__(part["name"].partition(":")[0])\n        '
            'sections["algorithm"] = as_tables('
        ),
        tests=("experiments/test_parts.py::test_reading_a_folder_imports_no_code_that_it_names",),
    ),
    Mutation(
        what="9 no pickle, no code in data: a server's message may name a module",
        file="deploy/flower/wire.py",
        old="    if name not in known:\n",
        new=(
            '    if ":" in name:\n        from accord.rules.registry import imported\n\n        return '
            "imported(name)(**settings)\n    if name not in known:\n"
        ),
        tests=("integration/test_flower.py::test_a_message_names_rules_that_are_known_and_never_a_module",),
        environment="flower",
    ),
    Mutation(
        what="9 no pickle, no code in data: arrays of a reply may be pickles",
        file="deploy/flower/npy.py",
        old="        dimensions, by_column, kind = _READERS",
        new=("        np.load(BytesIO(array.data), allow_pickle=True)\n        dimensions, by_column, kind = _READERS"),
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[training-array: objects to unpickle]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="10 one clear error: a number of 0 passes",
        file="core/errors.py",
        old="or not isinstance(value, int) or value < least:",
        new="or not isinstance(value, int) or value < 0:",
        tests=("rules/test_local_rules.py::test_bad_settings_are_refused",),
    ),
    Mutation(
        what="10 one clear error: True is a whole number",
        file="core/errors.py",
        old="if isinstance(value, bool) or not isinstance(value, int) or value < least",
        new="if not isinstance(value, int) or value < least",
        tests=("rules/test_local_rules.py::test_bad_settings_are_refused",),
    ),
    Mutation(
        what="10 one clear error: tau may be above 1",
        file="rules/masks/votes.py",
        old="int | float | Fraction) or not 0 <= number <= 1:",
        new="int | float | Fraction) or not 0 <= number:",
        tests=("rules/test_votes.py::test_tau_out_of_range_is_refused_with_its_value",),
    ),
    Mutation(
        what="10 one clear error: a key that nobody knows is let pass",
        file="experiments/section.py",
        old='extra="forbid"',
        new='extra="ignore"',
        tests=("experiments/test_experiment.py::test_a_bad_setting_is_one_sentence",),
    ),
    Mutation(
        what="10 one clear error: an error does not name its key",
        file="experiments/problems.py",
        old='return f"{section}.{key} must be {wanted}',
        new='return f"{section} must be {wanted}',
        tests=("experiments/test_experiment.py::test_a_bad_setting_is_one_sentence",),
    ),
    Mutation(
        what="10 one clear error: an infinite number passes",
        file="core/errors.py",
        old="_LARGEST < abs(value) != math.inf",
        new="math.inf < abs(value) != math.inf",
        tests=("experiments/test_odd_values.py::test_files_beyond_all_bounds_are_refused",),
    ),
    Mutation(
        what="10 one clear error: a failed check of a deployment has exit code 1",
        file="cli/deploy.py",
        old="raise typer.Exit(2)",
        new="raise typer.Exit(1)",
        tests=("deploy/test_checks.py::test_the_command_says_what_is_missing_and_exits_with_2",),
    ),
    Mutation(
        what="11 client state: a round that is skipped changes it",
        file="training/loop.py",
        old="        self.store.drop()\n        warnings",
        new="        self.store.accept()\n        warnings",
        tests=("training/test_fit.py::test_a_skipped_round_changes_no_control_variate",),
    ),
    Mutation(
        what="11 client state: a rejected client's state counts",
        file="engines/sequential.py",
        old="                if reason is not None:\n                    continue\n",
        new=(
            "                if reason is not None:\n                    work.stage(member.client, {name:"
            " value[0] for name, value in reports.after.items()})\n                    continue\n"
        ),
        tests=("engines/test_contract.py::test_what_accepted_clients_remember_is_staged_and_no_more",),
    ),
    Mutation(
        what="11 client state: a rejected lane's state counts",
        file="engines/vectorised/reporting.py",
        old=("        if row.left_out_because is None:\n            accepted.add(row.client)\n            if reported"),
        new=(
            "        if row.left_out_because is None:\n            accepted.add(row.client)\n        if "
            "True:\n            if reported"
        ),
        tests=("engines/test_contract.py::test_what_accepted_clients_remember_is_staged_and_no_more",),
    ),
    Mutation(
        what="11 client state: it counts before the round is accepted",
        file="training/client_store.py",
        old="        self._staged[client] = round\n",
        new="        self._staged[client] = self._current[client] = round\n",
        tests=("training/test_client_store.py::test_memory_and_disk_behave_alike",),
    ),
    Mutation(
        what="11 client state: it is not checked",
        file="engines/sequential.py",
        old="return why_leave_out(reports.delta[0], samples, layout, reports.buffers, kept, extra)",
        new="return why_leave_out(reports.delta[0], samples, layout, reports.buffers, (), extra)",
        tests=("training/test_fit.py::test_what_a_client_would_remember_is_checked_too",),
    ),
    Mutation(
        what="11 client state: a round that was never committed is remembered after a kill",
        file="training/client_store.py",
        old="                if file not in keep:\n                    file.unlink()",
        new="                pass",
        tests=("training/test_client_store.py::test_what_was_not_committed_is_forgotten",),
    ),
    Mutation(
        what="11 client state: a Flower client goes on from a report that was not accepted",
        file="deploy/flower/fleet.py",
        old="            version=version,",
        new="            version=work.round - 1 if version else 0,",
        tests=("integration/test_flower.py::test_control_variates_are_pending_until_accepted",),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a client may weigh what it likes",
        file="deploy/flower/fleet.py",
        old="if samples is not None and row.samples != samples:",
        new="if False:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[training-samples: not those registered]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a reply may speak for another client",
        file="deploy/flower/replies.py",
        old="if (self.client, self.round) != (client, round):",
        new="if self.round != round:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[training-client: another]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a reply may be of another round",
        file="deploy/flower/replies.py",
        old="if (self.client, self.round) != (client, round):",
        new="if self.client != client:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[training-round: another]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: arrays may have any shape",
        file="deploy/flower/npy.py",
        old="if kind not in kinds or not _fits(dimensions, shape):",
        new="if kind not in kinds:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[training-array: one too few]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: arrays may be shorter than announced",
        file="deploy/flower/npy.py",
        old="if len(data) != math.prod(dimensions) * kind.itemsize:",
        new="if False:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[training-array: a byte too few]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: an update of any length counts",
        file="deploy/flower/turns.py",
        old="            if length > max_norm_ratio * usual:",
        new="            if False:",
        tests=("integration/test_flower_hostile.py::test_an_absurd_update_is_left_out_and_named",),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: an update that is not finite counts",
        file="deploy/flower/sums.py",
        old="        if reason is not None:\n            raise AccordError(reason)\n",
        new="        pass\n",
        tests=("integration/test_flower.py::test_a_bad_client_is_left_out_and_counted",),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a sum that is not finite counts",
        file="deploy/flower/sums.py",
        old="        if bool(bad.any()):\n",
        new="        if False:\n",
        tests=(
            "integration/test_flower.py::test_who_is_left_out_of_the_second_exchange_corrects_nothing",
            "integration/test_flower.py::test_a_client_has_one_vote",
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a name may be taken over",
        file="deploy/flower/claims.py",
        old="if owner != node and not (key and key == self._nodes[owner].public_key):",
        new="if False:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_node_that_was_here_cannot_take_over_a_client_whose_node_is_gone"
            ),
            "integration/test_flower_hostile.py::test_of_two_claims_to_a_name_the_first_stays",
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a name's registered key is not compared",
        file="deploy/flower/claims.py",
        old="if self._keys.get(client, key) != key:",
        new="if False:",
        tests=("integration/test_flower_hostile.py::test_a_name_with_a_key_is_that_keys_node_s_alone",),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: bad replies exclude nobody",
        file="deploy/flower/conduct.py",
        old="if count == MOST_BAD_REPLIES and node",
        new="if False and node",
        tests=("integration/test_flower_hostile.py::test_a_node_is_excluded_after_three_bad_replies",),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: an honest failure excludes a node",
        file="deploy/flower/fleet.py",
        old=(
            "            return _silent(client, str(error)), {}\n        except AccordError as error:\n   "
            "         what ="
        ),
        new=(
            '            return _silent(client, self.roster.blame(node, "training", str(error))), {}\n   '
            "     except AccordError as error:\n            what ="
        ),
        tests=(("integration/test_flower_hostile.py::test_what_may_happen_to_an_honest_node_does_not_exclude_it"),),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a node evaluates others' clients",
        file="deploy/flower/figures.py",
        old="if group in asked and group not in held:",
        new="if False:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[evaluation-client: another's besides, in all "
                "parts]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: figures out of range count",
        file="deploy/flower/figures.py",
        old="if not in_range(_numbers(of.figures), bounds, samples):",
        new="if False:",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_a_tampered_reply_harms_its_sender_only[evaluation-accuracy: more than samples]"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: an evaluation that is not finite takes everybody's figure",
        file="deploy/flower/figures.py",
        old="diverged = [node for node, answer in self.answers.items() if not answer.finite]",
        new="diverged: list[int] = []",
        tests=(
            (
                "integration/test_flower_hostile.py::"
                "test_an_evaluation_that_is_not_finite_is_left_out_and_excludes_nobody"
            ),
        ),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a text of any length is parsed",
        file="deploy/flower/replies.py",
        old=('    if len(text) > LARGEST_TEXT or len(data := text.encode(errors="surrogatepass")) > LARGEST_TEXT:\n'),
        new='    data = text.encode(errors="surrogatepass")\n    if False:\n',
        tests=("integration/test_flower_hostile.py::test_words_are_measured_before_they_are_read",),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: an unmasked sum opens one client's record",
        file="deploy/flower/secagg.py",
        old="if survivors & dropped:",
        new="if False:",
        tests=("integration/test_flower_secagg.py::test_what_a_client_does_not_unmask",),
        environment="flower",
    ),
    Mutation(
        what="12 hostile replies: a sum of too few clients is unmasked",
        file="deploy/flower/secagg.py",
        old="if len(survivors) < graph.opens:",
        new="if False:",
        tests=("integration/test_flower_secagg.py::test_what_a_client_does_not_unmask",),
        environment="flower",
    ),
    # Rules: local rules, averages, masks, server rules, privacy, attacks, schedules.
    Mutation(
        what="sgd: momentum is added twice",
        file="rules/local/step.py",
        old="torch.addcmul(along, velocity, momentum, out=velocity)",
        new="torch.addcmul(along, velocity, momentum + 1, out=velocity)",
        tests=("rules/test_local_step.py::test_two_steps_by_hand",),
    ),
    Mutation(
        what="sgd: a step uphill",
        file="rules/local/step.py",
        old="w.addcmul_(velocity, lr, value=-1)",
        new="w.addcmul_(velocity, lr, value=1)",
        tests=("rules/test_local_step.py::test_two_steps_by_hand",),
    ),
    Mutation(
        what="sgd: the clip is none",
        file="rules/local/step.py",
        old="+ 1e-12)).clamp(max=1.0)",
        new="+ 1e-12)).clamp(min=1.0)",
        tests=("rules/test_local_step.py::test_clipping_leaves_short_gradients_alone",),
    ),
    Mutation(
        what="sgd: weight decay is clipped too",
        file="rules/local/step.py",
        old=(
            "        if factor is not None:\n            along = along * factor\n        if weight_decay "
            "is not None:\n            along = along + weight_decay * w\n"
        ),
        new=(
            "        if weight_decay is not None:\n            along = along + weight_decay * w\n        "
            "if factor is not None:\n            along = along * factor\n"
        ),
        tests=("rules/test_local_step.py::test_two_steps_by_hand",),
    ),
    Mutation(
        what="sgd: full_batch is ignored",
        file="engines/contract.py",
        old="if job.algorithm.local.full_batch:",
        new="if False:",
        tests=("rules/test_oracles.py::test_fedsgd_is_gradient_descent_on_the_average",),
    ),
    Mutation(
        what="local adam: the first moment is not corrected",
        file="rules/local/optimisers.py",
        old='"size": lr * root / (1.0 - beta1**steps)',
        new='"size": lr * root',
        tests=("engines/test_optimisers.py::test_thirty_steps_are_those_of_torch",),
    ),
    Mutation(
        what="local adam: eps before the correction",
        file="rules/local/optimisers.py",
        old='"eps": self.eps * root}',
        new='"eps": self.eps + 0 * root}',
        tests=("engines/test_optimisers.py::test_thirty_steps_are_those_of_torch",),
    ),
    Mutation(
        what="local adamw: decay goes into the gradient",
        file="rules/local/optimisers.py",
        old="return 0.0 if self.decoupled else self.weight_decay",
        new="return self.weight_decay",
        tests=("engines/test_optimisers.py::test_thirty_steps_are_those_of_torch",),
    ),
    Mutation(
        what="prox: pushed away from the start",
        file="rules/local/step.py",
        old="along = along + mu * (w - start)",
        new="along = along + mu * (start - w)",
        tests=(
            "rules/test_local_step.py::test_two_steps_by_hand",
            "rules/test_oracles.py::test_fedprox_fixed_point_of_one_client",
        ),
    ),
    Mutation(
        what="prox: pulled towards zero",
        file="rules/local/step.py",
        old="along = along + mu * (w - start)",
        new="along = along + mu * w",
        tests=("rules/test_local_step.py::test_two_steps_by_hand",),
    ),
    Mutation(
        what="control_variates: the drift has the wrong sign",
        file="rules/local/control_variates.py",
        old='return sent["c"] - client_state["c"]',
        new='return client_state["c"] - sent["c"]',
        tests=("rules/test_oracles.py::test_scaffold_reaches_the_optimum",),
    ),
    Mutation(
        what="control_variates: c moves by the mean of the cohort",
        file="rules/local/control_variates.py",
        old='total["change"] / round.clients',
        new='total["change"] / (round.cohort or round.clients)',
        tests=("training/test_fit.py::test_c_is_the_mean_of_all_c_n_every_round[True-0.3-mean]",),
    ),
    Mutation(
        what="control_variates: c moves the other way",
        file="rules/local/control_variates.py",
        old='state["c"] + total["change"]',
        new='state["c"] - total["change"]',
        tests=("rules/test_oracles.py::test_scaffold_reaches_the_optimum",),
    ),
    Mutation(
        what="control_variates: option II counts no steps",
        file="rules/local/control_variates.py",
        old="reports.delta / (reports.steps * lr)}",
        new="reports.delta / lr}",
        tests=(
            "rules/test_oracles.py::test_scaffold_reaches_the_optimum",
            "rules/test_oracles.py::test_option_two_equals_the_mean_gradient_without_momentum",
        ),
    ),
    Mutation(
        what="control_variates: option II forgets c",
        file="rules/local/control_variates.py",
        old='client_state["c"] - sent["c"] - reports',
        new='client_state["c"] - reports',
        tests=("rules/test_oracles.py::test_option_two_equals_the_mean_gradient_without_momentum",),
    ),
    Mutation(
        what="control_variates: option II has the wrong sign",
        file="rules/local/control_variates.py",
        old='- sent["c"] - reports.delta',
        new='- sent["c"] + reports.delta',
        tests=("rules/test_oracles.py::test_scaffold_reaches_the_optimum",),
    ),
    Mutation(
        what="control_variates: the mean gradient counts epochs and not steps",
        file="engines/sequential.py",
        old="(gradients / len(plan))[None]",
        new="(gradients / job.training.epochs)[None]",
        tests=("rules/test_oracles.py::test_option_two_equals_the_mean_gradient_without_momentum",),
    ),
    Mutation(
        what="masked_gradient: the gradient at the start is that at the end",
        file="engines/sequential.py",
        old='member, "start", start, buffers)',
        new='member, "start", w, ended)',
        tests=("rules/test_first_fedgma.py::test_quadratics_follow_the_closed_form",),
    ),
    Mutation(
        what="control_variates: option I, parts of the data count alike",
        file="engines/sequential.py",
        old="share = len(rows) / len(member.rows)",
        new="share = 1 / -(-len(member.rows) // _GRADIENT_BATCH)",
        tests=("engines/test_contract.py::test_the_gradient_of_all_data_is_the_mean_over_all_samples",),
    ),
    Mutation(
        what="ditto: pushed away from the common model",
        file="rules/local/ditto.py",
        old='self.lam * (client_state["w"] - sent["w"])',
        new='self.lam * (sent["w"] - client_state["w"])',
        tests=("training/test_personal.py::test_ditto_is_fedavg_and_a_model_of_ones_own_pulled_towards_it",),
    ),
    Mutation(
        what="ditto: no pull back to the start",
        file="rules/local/ditto.py",
        old="        return self.lam\n",
        new="        return 0.0\n",
        tests=("training/test_personal.py::test_ditto_is_fedavg_and_a_model_of_ones_own_pulled_towards_it",),
    ),
    Mutation(
        what="own_model: clients start from the server's model",
        file="rules/local/own_model.py",
        old='return client_state["w"], client_state["b"]',
        new="return vector, buffers",
        tests=("training/test_fit.py::test_local_only_keeps_every_clients_own_model",),
    ),
    Mutation(
        what="own_model: a model is not moved",
        file="rules/local/own_model.py",
        old='client_state["w"] + reports.delta',
        new='client_state["w"] - reports.delta',
        tests=("training/test_fit.py::test_local_only_keeps_every_clients_own_model",),
    ),
    Mutation(
        what="mean: clients count alike",
        file="rules/averages/mean.py",
        old='return reports.weight if self.weighting == "samples"',
        new='return reports.one if self.weighting == "samples"',
        tests=("rules/test_combine.py::test_mean_by_samples_and_uniform_by_hand",),
    ),
    Mutation(
        what="median: the lower of the two in the middle",
        file="rules/averages/median.py",
        old="x[..., -(-last // 2), :]) / 2",
        new="x[..., last // 2, :]) / 2",
        tests=("rules/test_robust_averages.py::test_median_by_hand",),
    ),
    Mutation(
        what="trimmed_mean: only the largest values are cut",
        file="rules/averages/trimmed_mean.py",
        old="x[..., cut : clients - cut, :]",
        new="x[..., : clients - cut, :]",
        tests=("rules/test_robust_averages.py::test_trimmed_mean_by_hand",),
    ),
    Mutation(
        what="trimmed_mean: the share is a float",
        file="rules/averages/trimmed_mean.py",
        old="math.floor(Fraction(repr(float(self.share))) * clients)",
        new="math.floor(self.share * clients)",
        tests=("rules/test_robust_averages.py::test_a_share_is_the_decimal_that_was_written",),
    ),
    Mutation(
        what="krum: one neighbour too many",
        file="rules/averages/krum.py",
        old="others = deltas.shape[-2] - attackers - 2",
        new="others = deltas.shape[-2] - attackers - 1",
        tests=("rules/test_robust_averages.py::test_krum_by_hand",),
    ),
    Mutation(
        what="krum: distances that are not squared",
        file="rules/averages/krum.py",
        old='"donot_use_mm_for_euclid_dist").square() for',
        new='"donot_use_mm_for_euclid_dist") for',
        tests=(
            "rules/test_robust_averages.py::test_krum_by_hand",
            "rules/test_robust_averages.py::test_krum_against_the_smallest_of_all_sums",
        ),
    ),
    Mutation(
        what="krum: distances lose small numbers",
        file="rules/averages/krum.py",
        old='torch.cdist(part, part, compute_mode="donot_use_mm_for_euclid_dist")',
        new='torch.cdist(part.float(), part.float(), compute_mode="use_mm_for_euclid_dist")',
        tests=("rules/test_robust_averages.py::test_krum_sees_small_distances_beside_large_updates",),
    ),
    Mutation(
        what="krum: the client farthest away",
        file="rules/averages/krum.py",
        old="stable=True)[..., : self.keep]",
        new="stable=True, descending=True)[..., : self.keep]",
        tests=("rules/test_robust_averages.py::test_krum_by_hand",),
    ),
    Mutation(
        what="krum: it takes too few reports",
        file="rules/averages/krum.py",
        old="max(2 * self.attackers + 3, self",
        new="max(2 * self.attackers + 2, self",
        tests=("rules/test_robust_averages.py::test_a_round_too_small_for_krum_is_skipped",),
    ),
    Mutation(
        what="geometric_mean: the arithmetic mean of a side",
        file="rules/averages/geometric_mean.py",
        old="torch.where(x > 0, x, 1.0).log()",
        new="torch.where(x > 0, x, 1.0) - 1.0",
        tests=("rules/test_robust_averages.py::test_geometric_mean_by_hand",),
    ),
    Mutation(
        what="geometric_mean: both sides pull up",
        file="rules/averages/geometric_mean.py",
        old='_pull(total["up"], total["log_up"]) - _pull',
        new='_pull(total["up"], total["log_up"]) + _pull',
        tests=(
            "rules/test_robust_averages.py::test_geometric_mean_by_hand",
            "rules/test_robust_averages.py::test_geometric_mean_of_a_majority",
        ),
    ),
    Mutation(
        what="geometric_mean: nobody need agree",
        file="rules/averages/geometric_mean.py",
        old="update.masked_fill_(~enough(total, self.agree), 0.0)",
        new="update",
        tests=(
            "rules/test_robust_averages.py::test_geometric_mean_by_hand",
            "rules/test_robust_averages.py::test_geometric_mean_of_a_majority",
        ),
    ),
    Mutation(
        what="corrective: gradients are added",
        file="rules/averages/corrective.py",
        old='total["delta"] / total["count"] - factor',
        new='total["delta"] / total["count"] + factor',
        tests=("rules/test_corrective.py::test_equation_29_worked_by_hand",),
    ),
    Mutation(
        what="corrective: the largest ratio bounds",
        file="rules/averages/corrective.py",
        old='Field(ratio.amin(-2), "min")',
        new='Field(ratio.amax(-2), "min")',
        tests=("rules/test_corrective.py::test_equation_29_worked_by_hand",),
    ),
    Mutation(
        what="corrective: eq. 24 divides by the norm and not its square",
        file="rules/averages/corrective.py",
        old="share = torch.where(squares > 0, m / squares, 0.0)",
        new="share = torch.where(squares > 0, m / squares.sqrt(), 0.0)",
        tests=("rules/test_corrective.py::test_equation_29_worked_by_hand",),
    ),
    Mutation(
        what="corrective: eq. 24 without the root",
        file="rules/averages/corrective.py",
        old='self.alpha * total["ratio"] / square.sqrt()',
        new='self.alpha * total["ratio"] / square',
        tests=("rules/test_corrective.py::test_equation_29_worked_by_hand",),
    ),
    Mutation(
        what="corrective: eq. 15 takes eq. 24's sums",
        file="rules/averages/corrective.py",
        old='push, square = total["gradient"], _dot(total["gradient"], total["gradient"])',
        new='push, square = total["gradient"], total["gradient"].abs().sum(-1, keepdim=True).double()',
        tests=("rules/test_corrective.py::test_equation_23_worked_by_hand",),
    ),
    Mutation(
        what="corrective: a client without a gradient bounds",
        file="rules/averages/corrective.py",
        old="losses.double().clamp(min=0.0) / squares.sqrt(), math.inf)",
        new="losses.double().clamp(min=0.0) / squares.sqrt(), 0.0)",
        tests=("rules/test_corrective.py::test_a_client_without_a_gradient_is_left_out",),
    ),
    Mutation(
        what="corrective: the mean is weighted",
        file="rules/averages/corrective.py",
        old="        return reports.one\n",
        new="        return reports.weight\n",
        tests=(
            "rules/test_corrective.py::test_alpha_0_is_unweighted_averaging",
            "rules/test_corrective.py::test_equation_29_worked_by_hand",
        ),
    ),
    Mutation(
        what="masked_gradient: it climbs",
        file="rules/averages/first_fedgma.py",
        old='sign = -1.0 if self.variant == "workshop" else 1.0',
        new="sign = 1.0",
        tests=("rules/test_first_fedgma.py::test_numbers_worked_by_hand",),
    ),
    Mutation(
        what="masked_gradient: the poster descends",
        file="rules/averages/first_fedgma.py",
        old='sign = -1.0 if self.variant == "workshop" else 1.0',
        new="sign = -1.0",
        tests=("rules/test_first_fedgma.py::test_numbers_worked_by_hand",),
    ),
    Mutation(
        what="masked_gradient: the poster ignores the sign of the vote",
        file="rules/averages/first_fedgma.py",
        old='agreed &= total["votes"] >= 0',
        new="pass",
        tests=("rules/test_first_fedgma.py::test_numbers_worked_by_hand",),
    ),
    Mutation(
        what="masked_gradient: the poster averages gradients and not their sizes",
        file="rules/averages/first_fedgma.py",
        old="total(gradients.abs(), reports.weight)",
        new="total(gradients, reports.weight)",
        tests=("rules/test_first_fedgma.py::test_numbers_worked_by_hand",),
    ),
    Mutation(
        what="masked_gradient: no mask",
        file="rules/averages/first_fedgma.py",
        old="masked_fill_(~agreed, 0.0)",
        new="masked_fill_(agreed & ~agreed, 0.0)",
        tests=("rules/test_first_fedgma.py::test_numbers_worked_by_hand",),
    ),
    Mutation(
        what="masked_gradient: the gradient is not averaged",
        file="rules/averages/first_fedgma.py",
        old='(total["gradient"] / total["weight"]).masked',
        new='total["gradient"].masked',
        tests=("rules/test_first_fedgma.py::test_numbers_worked_by_hand",),
    ),
    Mutation(
        what="masked_gradient: the first step's gradient for the last",
        file="engines/sequential.py",
        old="keeps = number + 1 == len(plan) and",
        new="keeps = number == 0 and",
        tests=("rules/test_first_fedgma.py::test_it_equals_a_plain_loop",),
    ),
    Mutation(
        what="gma: what does not reach tau is dropped",
        file="rules/masks/gma.py",
        old="return share.masked_fill_(whole, 1.0).to(",
        new="return share.masked_fill_(whole, 1.0).masked_fill_(~whole, 0.0).to(",
        tests=("rules/test_votes.py::test_soft_mask_by_hand",),
    ),
    Mutation(
        what="gma: what reaches tau is scaled too",
        file="rules/masks/gma.py",
        old="share.masked_fill_(whole, 1.0)",
        new="share",
        tests=("rules/test_votes.py::test_soft_mask_by_hand",),
    ),
    Mutation(
        what="gma: buffers are masked",
        file="training/server_step.py",
        old="vector + change, buffers + moved",
        new="vector + change, buffers + moved * (1.0 if lowered.mask is None else lowered.mask.mean())",
        tests=("training/test_fit.py::test_buffers_are_averaged_by_samples_and_never_masked",),
    ),
    Mutation(
        what="and_mask: what is held back is scaled",
        file="rules/masks/and_mask.py",
        old="mask = self.agreement(total, state, round)[1].to(",
        new="mask = self.agreement(total, state, round)[0].to(",
        tests=("rules/test_votes.py::test_hard_mask_by_hand",),
    ),
    Mutation(
        what="and_mask: rescale multiplies by the share kept",
        file="rules/masks/votes.py",
        old="part.shape[-1] / kept, kept)",
        new="kept / part.shape[-1], kept)",
        tests=("rules/test_votes.py::test_rescale_divides_each_tensor_by_the_share_it_kept",),
    ),
    Mutation(
        what="and_mask: rescale is always on",
        file="rules/masks/and_mask.py",
        old="return rescaled(mask, round.layout) if self.rescale else mask, state",
        new="return rescaled(mask, round.layout), state",
        tests=("rules/test_votes.py::test_hard_mask_by_hand",),
    ),
    Mutation(
        what="sand: the variance is biased",
        file="rules/masks/sand.py",
        old="(count - 1).clamp(min=1.0)",
        new="count",
        tests=("rules/test_mask_variants.py::test_sand_by_hand",),
    ),
    Mutation(
        what="sand: the standard deviation",
        file="rules/masks/sand.py",
        old="torch.tanh(self.k * above / spread)",
        new="torch.tanh(self.k * above / spread.sqrt())",
        tests=("rules/test_mask_variants.py::test_sand_by_hand",),
    ),
    Mutation(
        what="sand: what does not exceed tau turns around",
        file="rules/masks/sand.py",
        old="mask = rising.clamp_(min=0.0)",
        new="mask = rising",
        tests=("rules/test_mask_variants.py::test_sand_holds_back_whatever_does_not_exceed_tau",),
    ),
    Mutation(
        what="sand: sums lose small variances",
        file="core/record.py",
        old="out = x.new_zeros(_summed(x), dtype=torch.float64)",
        new="out = x.new_zeros(_summed(x), dtype=torch.float32)",
        tests=("rules/test_mask_variants.py::test_sand_finds_a_small_variance_beside_a_large_mean",),
    ),
    Mutation(
        what="magnitude: clients count alike",
        file="rules/masks/magnitude.py",
        old='net=reports.total, gross=total(reports.delta.abs(), reports.weight, "update")',
        new="net=total(reports.delta), gross=total(reports.delta.abs())",
        tests=("rules/test_mask_variants.py::test_magnitude_weighs_clients_as_the_average_does",),
    ),
    Mutation(
        what="magnitude: a tie does not pass",
        file="rules/masks/magnitude.py",
        old="share >= float(tau_at",
        new="share > float(tau_at",
        tests=("rules/test_tau_fractions.py::test_magnitude_reaches_a_tie",),
    ),
    Mutation(
        what="magnitude: a coordinate that nobody moves passes",
        file="rules/masks/magnitude.py",
        old='total["net"].abs() / gross, 0.0)',
        new='total["net"].abs() / gross, 1.0)',
        tests=("rules/test_mask_variants.py::test_magnitude_by_hand",),
    ),
    Mutation(
        what="scaled: as long as the whole step",
        file="rules/masks/control.py",
        old="torch.where(length > 0, wanted / length, 1.0)",
        new="torch.where(length > 0, wanted / wanted, 1.0)",
        tests=("rules/test_mask_variants.py::test_controls_by_hand",),
    ),
    Mutation(
        what="scaled: as long as the masked step, squared",
        file="rules/masks/control.py",
        old="torch.where(length > 0, wanted / length, 1.0)",
        new="torch.where(length > 0, (wanted / length) ** 2, 1.0)",
        tests=("rules/test_mask_variants.py::test_control_takes_a_step_as_long_as_the_masked_one",),
    ),
    Mutation(
        what="scaled: by mean the mask is kept",
        file="rules/masks/control.py",
        old="return mask.mean(-1, keepdim=True, dtype=torch.float64).to(mask.dtype) * direction",
        new="return mask * direction",
        tests=("rules/test_mask_variants.py::test_control_by_mean_scales_the_step_by_the_mean_of_the_mask",),
    ),
    Mutation(
        what="scaled: before a server that normalizes it compares updates",
        file="rules/masks/control.py",
        old='if self.by == "mean":\n            return super()',
        new="if True:\n            return super()",
        tests=(
            "rules/test_mask_variants.py::test_control_takes_a_step_as_long_as_the_masked_one",
            "engines/test_engines_agree.py::test_control_takes_a_step_as_long_as_the_masked_one",
        ),
    ),
    Mutation(
        what="memory: votes are remembered and voters are not",
        file="rules/masks/votes.py",
        old="self.memory * state[name] + total[name] for name in",
        new='(self.memory if name == "votes" else 0.0) * state[name] + total[name] for name in',
        tests=("rules/test_mask_variants.py::test_remembered_votes_by_hand",),
    ),
    Mutation(
        what="memory: this round's votes decay",
        file="rules/masks/votes.py",
        old="self.memory * state[name] + total[name]",
        new="self.memory * (state[name] + total[name])",
        tests=("rules/test_mask_variants.py::test_remembered_votes_by_hand",),
    ),
    Mutation(
        what="memory: a tie does not pass",
        file="rules/masks/votes.py",
        old="net >= float(tau) * (1 - _ROUNDING) * counts",
        new="net > float(tau) * (1 + _ROUNDING) * counts",
        tests=("rules/test_mask_variants.py::test_a_vote_that_never_changes_is_a_tie_for_ever",),
    ),
    Mutation(
        what="scope: a layer's votes cancel out",
        file="rules/masks/votes.py",
        old="net = part.abs().sum(-1",
        new="net = part.sum(-1",
        tests=("rules/test_mask_variants.py::test_a_tie_of_a_layer_at_exactly_tau_passes",),
    ),
    Mutation(
        what="scope: a layer is judged by its sum",
        file="rules/masks/votes.py",
        old="yield net, counts.double() * part.shape[-1], part.shape",
        new="yield net, counts.double(), part.shape",
        tests=("rules/test_mask_variants.py::test_a_layer_passes_by_its_mean_agreement",),
    ),
    Mutation(
        what="scope: a layer is the model",
        file="rules/masks/votes.py",
        old='if self.scope == "layer" else [votes]',
        new='if self.scope == "none" else [votes]',
        tests=("rules/test_mask_variants.py::test_a_layer_passes_by_its_mean_agreement",),
    ),
    Mutation(
        what="step: the rate is left out",
        file="rules/algorithm.py",
        old="return self.server.lr * direction,",
        new="return direction,",
        tests=("rules/test_servers.py::test_plain_step",),
    ),
    Mutation(
        what="momentum: the update decays too",
        file="rules/servers/momentum.py",
        old='self.beta * state["z"] + update',
        new='self.beta * (state["z"] + update)',
        tests=("rules/test_servers.py::test_momentum_two_steps",),
    ),
    Mutation(
        what="momentum: a running mean",
        file="rules/servers/momentum.py",
        old='self.beta * state["z"] + update',
        new='self.beta * state["z"] + (1 - self.beta) * update',
        tests=("rules/test_servers.py::test_momentum_two_steps",),
    ),
    Mutation(
        what="adagrad: the square is not added",
        file="rules/servers/adaptive.py",
        old='v = state["v"] + update.square()',
        new="v = update.square()",
        tests=("rules/test_servers.py::test_second_steps_remember_the_first",),
    ),
    Mutation(
        what="adagrad: the square decays",
        file="rules/servers/adaptive.py",
        old='v = state["v"] + update.square()',
        new='v = 0.5 * state["v"] + update.square()',
        tests=("rules/test_servers.py::test_adagrad_first_step",),
    ),
    Mutation(
        what="adam: the first moment is a sum",
        file="rules/servers/adaptive.py",
        old="z = self.beta1 * z + (1 - self.beta1) * update",
        new="z = self.beta1 * z + update",
        tests=("rules/test_servers.py::test_adam_first_step_at_delta_equal_to_eps",),
    ),
    Mutation(
        what="adam: the first moment is forgotten",
        file="rules/servers/adaptive.py",
        old="z = self.beta1 * z + (1 - self.beta1) * update",
        new="z = (1 - self.beta1) * update",
        tests=("rules/test_servers.py::test_second_steps_remember_the_first",),
    ),
    Mutation(
        what="adam: the second moment has beta1",
        file="rules/servers/adaptive.py",
        old="v = self.beta2 * v + (1 - self.beta2) * square",
        new="v = self.beta1 * v + (1 - self.beta1) * square",
        tests=("rules/test_servers.py::test_second_steps_remember_the_first",),
    ),
    Mutation(
        what="adam: v begins at eps",
        file="rules/servers/adaptive.py",
        old="torch.full_like(vector, eps**2)",
        new="torch.full_like(vector, eps)",
        tests=("rules/test_servers.py::test_adam_first_step_at_delta_equal_to_eps",),
    ),
    Mutation(
        what="yogi: v moves the other way",
        file="rules/servers/adaptive.py",
        old="v = v - (1 - self.beta2) * square * torch.sign(v - square)",
        new="v = v + (1 - self.beta2) * square * torch.sign(v - square)",
        tests=("rules/test_servers.py::test_yogi_first_steps_above_and_below_v",),
    ),
    Mutation(
        what="yogi: v is forgotten",
        file="rules/servers/adaptive.py",
        old="v = v - (1 - self.beta2) * square * torch.sign(v - square)",
        new="v = square - (1 - self.beta2) * square * torch.sign(v - square)",
        tests=("rules/test_servers.py::test_second_steps_remember_the_first",),
    ),
    Mutation(
        what="yogi: it is adam",
        file="rules/servers/adaptive.py",
        old="placement, bounded=True)",
        new="placement, bounded=False)",
        tests=("rules/test_servers.py::test_yogi_first_steps_above_and_below_v",),
    ),
    Mutation(
        what="eps_inside: eps beside the root",
        file="rules/servers/adaptive.py",
        old="return z / (v + eps).sqrt() if inside else",
        new="return z / (v.sqrt() + eps) if inside else",
        tests=("rules/test_servers.py::test_adam_with_eps_under_the_root_is_sixteen_times_smaller",),
    ),
    Mutation(
        what="eps_inside: v begins at eps^2",
        file="rules/servers/adaptive.py",
        old="torch.zeros_like(vector) if inside else",
        new="torch.full_like(vector, eps) if inside else",
        tests=("rules/test_servers.py::test_adam_with_eps_under_the_root_is_sixteen_times_smaller",),
    ),
    Mutation(
        what="placement: before is after",
        file="core/protocols.py",
        old='        if server.placement == "before":',
        new="        if False:",
        tests=(("rules/test_servers.py::test_the_mask_scales_the_step_by_default_and_the_update_if_placed_before"),),
    ),
    Mutation(
        what="privacy: long updates are not clipped",
        file="privacy/dp.py",
        old="(self.clip * _BELOW / norms).clamp(max=1.0)",
        new="(self.clip * _BELOW / norms).clamp(min=1.0)",
        tests=("privacy/test_dp.py::test_long_updates_are_scaled_down_and_short_ones_left_alone",),
    ),
    Mutation(
        what="privacy: short updates are scaled up",
        file="privacy/dp.py",
        old="(self.clip * _BELOW / norms).clamp(max=1.0)",
        new="(self.clip * _BELOW / norms)",
        tests=("privacy/test_dp.py::test_long_updates_are_scaled_down_and_short_ones_left_alone",),
    ),
    Mutation(
        what="privacy: noise without the clip",
        file="privacy/dp.py",
        old='self._noise("update", self.noise * self.clip, update, round)',
        new='self._noise("update", self.noise, update, round)',
        tests=("privacy/test_dp.py::test_noise_has_the_stated_deviation_and_counts_are_fixed",),
    ),
    Mutation(
        what="privacy: votes have noise of one coordinate",
        file="privacy/dp.py",
        old='votes + self._noise("votes", self.vote_noise * math.sqrt(votes.shape[-1]), votes, round)',
        new='votes + self._noise("votes", self.vote_noise, votes, round)',
        tests=("privacy/test_dp.py::test_noise_has_the_stated_deviation_and_counts_are_fixed",),
    ),
    Mutation(
        what="privacy: the same noise in every round",
        file="privacy/dp.py",
        old='f"privacy: {what}", round.number)',
        new='f"privacy: {what}")',
        tests=("privacy/test_dp.py::test_noise_has_the_stated_deviation_and_counts_are_fixed",),
    ),
    Mutation(
        what="privacy: the same noise on updates and votes",
        file="privacy/dp.py",
        old='f"privacy: {what}", round.number)',
        new='"privacy: update", round.number)',
        tests=("privacy/test_dp.py::test_noise_has_the_stated_deviation_and_counts_are_fixed",),
    ),
    Mutation(
        what="privacy: the server sees how many reported",
        file="privacy/dp.py",
        old='if field.kind in ("count", "weight")\n',
        new="if field.kind in ()\n",
        tests=("privacy/test_dp.py::test_noise_has_the_stated_deviation_and_counts_are_fixed",),
    ),
    Mutation(
        what="privacy: noise goes on twice",
        file="privacy/dp.py",
        old="        if isinstance(record, Released):\n            return record\n",
        new="",
        tests=("privacy/test_dp.py::test_noise_goes_on_once",),
    ),
    Mutation(
        what="privacy: sensitivity is half of what it is",
        file="privacy/accounting.py",
        old="dp_accounting.GaussianDpEvent(noise / 2.0)",
        new="dp_accounting.GaussianDpEvent(noise)",
        tests=("privacy/test_dp.py::test_epsilon_without_sampling_against_the_closed_form",),
    ),
    Mutation(
        what="privacy: rounds are not composed",
        file="privacy/accounting.py",
        old="accountant.compose(event, rounds)",
        new="accountant.compose(event, 1)",
        tests=("privacy/test_dp.py::test_epsilon_without_sampling_against_the_closed_form",),
    ),
    Mutation(
        what="privacy: update and votes are counted once",
        file="privacy/dp.py",
        old="return 1.0 / math.hypot(1.0 / self.noise, 1.0 / self.vote_noise)",
        new="return min(self.noise, self.vote_noise)",
        tests=("privacy/test_dp.py::test_update_and_votes_together_are_one_mechanism",),
    ),
    Mutation(
        what="privacy: larger weights are let pass",
        file="rules/algorithm.py",
        old="if self.privacy is not None and not torch.equal(weighted.weight, weighted.one):",
        new="if False:",
        tests=("privacy/test_dp.py::test_experiments_that_the_guarantee_would_not_cover",),
    ),
    Mutation(
        what="privacy: the best model is chosen on held-out data",
        file="training/checkpoint.py",
        old="if evaluation is None or evaluation.privacy is not None or",
        new="if evaluation is None or",
        tests=("privacy/test_dp.py::test_no_model_and_no_figure_is_chosen_by_private_held_out_data",),
    ),
    Mutation(
        what="distributed privacy: noise for the whole cohort",
        file="privacy/distributed.py",
        old="math.sqrt(self.enforced(cohort))\n\n    def check_room",
        new="math.sqrt(cohort)\n\n    def check_room",
        tests=("privacy/test_distributed.py::test_noise_is_for_as_many_as_a_client_sees_remain",),
    ),
    Mutation(
        what="distributed privacy: rounding is not counted",
        file="privacy/distributed.py",
        old="return self.clip / form.step + math.sqrt(size) / 2",
        new="return self.clip / form.step",
        tests=("privacy/test_distributed.py::test_sensitivity_counts_rounding",),
    ),
    Mutation(
        what="distributed privacy: replacing a client moves a sum by its norm once",
        file="privacy/accounting.py",
        old="rho = 2.0 * rounds / noise / noise",
        new="rho = 0.5 * rounds / noise / noise",
        tests=("privacy/test_distributed.py::test_epsilon_against_the_closed_form_and_against_the_library",),
    ),
    Mutation(
        what="secure sum: a sum may wrap around",
        file="privacy/secure_sum.py",
        old="((1 << self.bits - 1) - 1) // self.clients",
        new="((1 << self.bits - 1) - 1)",
        tests=("privacy/test_secure_sum.py::test_a_sum_is_right_within_half_a_step_per_client",),
    ),
    Mutation(
        what="secure sum: masks do not cancel",
        file="privacy/secure_sum.py",
        old="if mine < theirs else -torch",
        new="if mine < theirs else torch",
        tests=(("privacy/test_secure_sum.py::test_the_server_sees_masked_shares_alone_and_gets_the_right_sum"),),
    ),
    Mutation(
        what="sign_flip: the sign stays",
        file="attacks/attack.py",
        old="return -self.factor * sent",
        new="return self.factor * sent * 1.0",
        tests=("attacks/test_attacks.py::test_attacks_by_hand",),
    ),
    Mutation(
        what="scaled attack: it is not scaled",
        file="attacks/attack.py",
        old="        return self.factor * sent\n",
        new="        return sent\n",
        tests=("attacks/test_attacks.py::test_attacks_by_hand",),
    ),
    Mutation(
        what="noise attack: not as long as the update",
        file="attacks/attack.py",
        old="sent.norm(dim=-1, keepdim=True) / drawn.norm(dim=-1, keepdim=True))",
        new="sent.norm(dim=-1, keepdim=True))",
        tests=("attacks/test_attacks.py::test_noise_is_as_long_as_the_update_and_fresh_every_round",),
    ),
    Mutation(
        what="noise attack: the same in every round",
        file="attacks/attackers.py",
        old='"attack", round, clients[k], name)',
        new='"attack", clients[k], name)',
        tests=("attacks/test_attacks.py::test_noise_is_as_long_as_the_update_and_fresh_every_round",),
    ),
    Mutation(
        what="noise attack: the same at all attackers",
        file="attacks/attackers.py",
        old='"attack", round, clients[k], name)',
        new='"attack", round, name)',
        tests=("attacks/test_attacks.py::test_noise_is_as_long_as_the_update_and_fresh_every_round",),
    ),
    Mutation(
        what="label_flip: the classes are off by one",
        file="attacks/attackers.py",
        old="return self.classes - 1 if",
        new="return self.classes if",
        tests=("attacks/test_attacks.py::test_label_flip_is_training_on_flipped_labels",),
    ),
    Mutation(
        what="label_flip: all clients flip",
        file="attacks/attackers.py",
        old="if self.attack.flips and client in self.clients else -1",
        new="if self.attack.flips else -1",
        tests=("attacks/test_attacks.py::test_nobody_attacks_with_a_share_of_nothing",),
    ),
    Mutation(
        what="attackers: the share is rounded down",
        file="attacks/attackers.py",
        old="math.floor(attack.share * len(fed.clients) + 0.5)",
        new="math.floor(attack.share * len(fed.clients))",
        tests=("attacks/test_attacks.py::test_who_attacks_is_a_keyed_draw_of_a_share_of_all_clients",),
    ),
    Mutation(
        what="exponential: one round ahead",
        file="core/schedule.py",
        old="self.lr * self.decay ** (round - 1)\n",
        new="self.lr * self.decay**round\n",
        tests=("rules/test_local_rules.py::test_schedules_by_hand",),
    ),
    Mutation(
        what="steps: one round early",
        file="core/schedule.py",
        old="((round - 1) // self.every)",
        new="(round // self.every)",
        tests=("rules/test_local_rules.py::test_schedules_by_hand",),
    ),
    Mutation(
        what="cosine: it ends at zero and not at its floor",
        file="core/schedule.py",
        old="return self.floor + (self.lr - self.floor) *",
        new="return self.lr *",
        tests=("rules/test_local_rules.py::test_schedules_by_hand",),
    ),
    Mutation(
        what="ramp: from the end to the start",
        file="core/schedule.py",
        old="return (1.0 - done) * self.lr + done * self.end",
        new="return done * self.lr + (1.0 - done) * self.end",
        tests=("rules/test_mask_variants.py::test_ramp_by_hand_and_its_limits",),
    ),
)

# --------------------------------------------------------------------------------------------------------- running

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "accord"
COPIED = ("src", "tests", "examples", "experiments", "pyproject.toml")  # what the tests read
LIMIT = 300.0  # seconds for the tests of one mutation
# A test that fails for one of these reasons shows a mistake in the mutation.
MISTAKES = ("NameError", "UnboundLocalError", "SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError")
FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/.*?)(?: - (.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """What came of a mutation."""

    verdict: str  # killed, SURVIVED, ERROR or skipped
    detail: str  # the test that failed, or what is wrong
    seconds: float = 0.0


class Copies:
    """Copies of the sources, one for each worker, and the processes that run in them."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._processes: set[subprocess.Popen[str]] = set()
        self._stopped = False
        for number in range(count):
            copy = folder / str(number)
            copy.mkdir()
            for name in COPIED:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, copy / name)
            # By hash, because a mutation may leave a file's size and its time in seconds as they were.
            by_hash = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src"]
            subprocess.run([sys.executable, *by_hash], cwd=copy, check=True)
            self._free.put(copy)

    @contextmanager
    def one(self) -> Iterator[Path]:
        """A copy that no other worker has."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def pytest(self, copy: Path, tests: Sequence[str], environment: str) -> tuple[int | None, str]:
        """The exit code of pytest, None after the time limit; and what it printed."""
        options = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=short"]
        # pytest's plugins take a second to load, and no test needs one
        variables = {"PYTHONPATH": str(copy / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "300"}
        process = subprocess.Popen(
            [python_of(environment), *options, *(f"tests/{test}" for test in tests)],
            cwd=copy,
            env={**os.environ, **variables},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a process group, which ends as a whole
        )
        self._processes.add(process)
        try:
            if self._stopped:
                end(process)
            printed, _ = process.communicate(timeout=LIMIT)
            return process.returncode, printed
        except subprocess.TimeoutExpired:
            end(process)
            return None, process.communicate()[0]
        finally:
            self._processes.discard(process)

    def stop(self) -> None:
        """Ends all processes, and those that are about to start."""
        self._stopped = True
        for process in list(self._processes):
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def python_of(environment: str) -> str:
    """The interpreter of an environment."""
    return str(ROOT / ".venvs" / f"test-{environment}" / "bin" / "python") if environment else sys.executable


def check_table(mutations: Sequence[Mutation]) -> list[str]:
    """What does not fit the sources."""
    wrong = []
    for mutation in mutations:
        file = SOURCES / mutation.file
        if not file.is_file():
            wrong.append(f"{mutation}: there is no such file")
        elif (times := file.read_text().count(mutation.old)) != 1:
            wrong.append(f"{mutation}: the text must occur once, and occurs {times} times: {mutation.old!r}")
        elif mutation.old == mutation.new:
            wrong.append(f"{mutation}: it changes nothing")
    return wrong


def check_tests(copies: Copies, pool: Executor, mutations: Sequence[Mutation], jobs: int) -> list[str]:
    """What the tests of the mutations print where they fail without a mutation."""

    def check(tests: Sequence[str], environment: str) -> tuple[int | None, str]:
        with copies.one() as copy:
            return copies.pytest(copy, tests, environment)

    pending = []
    for environment in {mutation.environment for mutation in mutations}:
        tests = sorted({test for m in mutations if m.environment == environment for test in m.tests})
        for part in range(min(jobs, len(tests))):
            pending.append(pool.submit(check, tests[part::jobs], environment))
    results = [done.result() for done in pending]
    return [f"no result within {LIMIT:g} s" if code is None else printed for code, printed in results if code != 0]


def tried(copies: Copies, mutation: Mutation) -> Result:
    """Runs the mutation's tests on a copy that has it."""
    began = time.monotonic()
    with copies.one() as copy:
        file = copy / "src" / "accord" / mutation.file
        before = file.read_text()
        file.write_text(before.replace(mutation.old, mutation.new))
        try:
            code, printed = copies.pytest(copy, mutation.tests, mutation.environment)
        finally:
            file.write_text(before)
    return verdict(mutation, code, printed, time.monotonic() - began)


def verdict(mutation: Mutation, code: int | None, printed: str, seconds: float) -> Result:
    """What the exit code of pytest, and what it printed, say of a mutation."""
    failures, errors = FAILURE.findall(printed), re.findall(r"^E +(.*)$", printed, re.MULTILINE)
    if code == 0:
        return Result("SURVIVED", ", ".join(mutation.tests), seconds)
    if code is None:
        return Result("ERROR", f"no result within {LIMIT:g} s", seconds)
    if code != 1 or not failures:
        return Result("ERROR", errors[-1] if errors else " ".join(printed.split())[-300:], seconds)
    test, reason = failures[0]
    if "::" not in test or reason.startswith(MISTAKES):  # without a test, the file could not be imported
        return Result("ERROR", f"{test}: {reason}", seconds)
    return Result("killed", test.removeprefix("tests/"), seconds)


def run(mutations: Sequence[Mutation], jobs: int) -> int:
    """Prints a line for each mutation and a table of what is wrong, and gives the exit code."""
    there = [mutation for mutation in mutations if Path(python_of(mutation.environment)).exists()]
    results = {m: Result("skipped", f"make test-{m.environment} makes its environment") for m in mutations}
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = Copies(Path(folder), jobs)
        try:
            if failed := check_tests(copies, pool, there, jobs):
                print(*failed, "The tests fail without a mutation.", sep="\n")
                return 1
            pending = {pool.submit(tried, copies, mutation): mutation for mutation in there}
            for done in as_completed(pending):
                result = results[pending[done]] = done.result()
                print(f"{result.seconds:4.0f} s  {result.verdict:8}  {pending[done]}: {result.detail}", flush=True)
        except KeyboardInterrupt:
            copies.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            print("stopped by Ctrl-C")
            return 130
    return told(results)


def told(results: Mapping[Mutation, Result]) -> int:
    """Prints how many mutations of each invariant and rule were killed, and those that were not. Gives the exit
    code."""
    groups: dict[str, Counter[str]] = {}
    for mutation, result in results.items():
        groups.setdefault(mutation.what.partition(":")[0], Counter())[result.verdict] += 1
    print()
    for group, counts in groups.items():
        print(f"{counts['killed']:3} of {counts.total():3} killed   {group}")
    for mutation, result in results.items():
        if result.verdict != "killed":
            print(f"{result.verdict:8}  {mutation}: {result.detail}")
    return 1 if {"SURVIVED", "ERROR"} & {result.verdict for result in results.values()} else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Checks that the tests notice small mistakes in the sources.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only mutations with one of these in name or file")
    parser.add_argument("--jobs", type=int, default=2, help="how many to run at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="print the mutations and run nothing")
    asked = parser.parse_args()
    chosen = [m for m in MUTATIONS if not asked.words or any(word in str(m) for word in asked.words)]
    if asked.list:
        print(*chosen, sep="\n")
        return 0
    if wrong := check_table(chosen):
        print(*wrong, sep="\n")
        return 1
    return run(chosen, asked.jobs)


if __name__ == "__main__":
    sys.exit(main())
