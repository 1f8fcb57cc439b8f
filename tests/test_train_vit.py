"""The example that trains: resumed to the bit, interrupted but whole, alone and on two ranks."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from puzzles_lib.examples import checkpoints, leaving, train_vit, training
from puzzles_lib.examples.images import COUNT, digits, order
from puzzles_lib.examples.kept import Kept
from puzzles_lib.examples.training import PARALLEL, Config, LossLost, RankLost, Ranks, train
from puzzles_lib.kernels.modules import PackedLinear
from tests.together import together

REPO = Path(__file__).parent.parent
ALONE = Ranks(torch.device("cpu"))
CONFIG = Config(batch=4, rounding="stochastic", dropout=0.1)
PLAIN = Config(batch=4)
SAME = replace(CONFIG, rounding="nearest", dropout=0.0)  # on any number of ranks, except for rounding


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    torch.use_deterministic_algorithms(False)  # which the command does


@pytest.fixture
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def at_step(monkeypatch, number, act):
    """Have something happen at the start of a step."""
    take_step = training.take_step

    def patched(run, images, optimiser, ranks, step):
        if step == number:
            act()
        take_step(run, images, optimiser, ranks, step)

    monkeypatch.setattr(training, "take_step", patched)


# ---- alone


def test_every_image_comes_once_an_epoch():
    batches = [order(1500, 100, step, seed=3) for step in range(30)]
    first, second = torch.cat(batches[:15]), torch.cat(batches[15:])
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(1500))
    assert not torch.equal(first, second) and not torch.equal(first, order(1500, 1500, 0, seed=4))
    assert torch.equal(order(1500, 100, 29, seed=3), batches[29])
    assert [len(some) for some in digits()] == [COUNT["digits"], 297]


@pytest.mark.parametrize("bits", [2, None])
def test_a_resumed_run_has_the_losses_of_one_that_was_not(tmp_path, bits):
    config = replace(CONFIG, bits=bits)
    whole = train(config, 3, ALONE)
    train(config, 1, ALONE, tmp_path)
    torch.manual_seed(99)  # another process has other random numbers
    resumed = train(config, 3, ALONE, tmp_path, resume=True)
    assert resumed.losses == whole.losses and len(set(whole.losses)) == 3
    assert len(resumed.seconds) == len(resumed.peaks) == 3


def test_a_signal_ends_the_step_and_saves(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    whole = train(CONFIG, 4, ALONE)
    with monkeypatch.context() as patch:
        at_step(patch, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
        stopped = train(CONFIG, 4, ALONE, tmp_path)
    assert stopped.stopped == signal.SIGTERM and stopped.losses == whole.losses[:2]
    assert stopped.saved == tmp_path / "step-00000002" and signal.getsignal(signal.SIGTERM) is before
    assert train(CONFIG, 4, ALONE, tmp_path, resume=True).losses == whole.losses


def test_a_second_signal_acts_at_once(monkeypatch):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    at_step(monkeypatch, 1, twice)
    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, 4, ALONE)


def test_a_loss_that_is_no_number_ends_the_run():
    with pytest.raises(LossLost, match=r"^the loss is nan in step \d, with lr 1e\+20$"):
        train(replace(CONFIG, bits=None, lr=1e20), 9, ALONE)


def test_only_the_newest_checkpoints_stay(tmp_path):
    train(CONFIG, 5, ALONE, tmp_path, save_every=2)
    assert [path.name for path in checkpoints.checkpoints(tmp_path)] == ["step-00000004", "step-00000005"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("saved")
    train(PLAIN, 2, ALONE, folder, save_every=1)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def shorten(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "run.json").unlink(),
        lambda path: shorten(path / "run.json"),
        lambda path: (path / ".metadata").unlink(),
        lambda path: shorten(path / ".metadata"),
        lambda path: shorten(next(path.glob("*.distcp"))),
        lambda path: next(path.glob("*.distcp")).unlink(),
        lambda path: path.rename(path.with_name(path.name + ".partial")),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(folder, damage):
    assert checkpoints.newest(folder).name == "step-00000002"
    damage(folder / "step-00000002")
    assert checkpoints.newest(folder).name == "step-00000001"
    resumed = train(PLAIN, 2, ALONE, folder, resume=True)
    assert resumed.saved.name == "step-00000002" and checkpoints.is_whole(resumed.saved)
    assert not list(folder.glob("*.partial"))


def test_a_checkpoint_that_cannot_be_written_leaves_the_others(folder, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dcp.FileSystemWriter, "write_data", full)
    with pytest.raises(
        OSError, match="step-00000003.partial could not be written: rank 0: OSError: .*No space"
    ):
        train(PLAIN, 3, ALONE, folder, resume=True)
    assert checkpoints.newest(folder).name == "step-00000002" and len(checkpoints.checkpoints(folder)) == 2


def test_what_is_kept_for_backward_is_counted_once():
    layer, x = PackedLinear(256, 8, bits=2), torch.randn(128, 256)
    with Kept() as kept:
        layer(x).sum().backward()
    codes, params = 128 * 256 * 2 // 8, 128 * 2 * 4
    assert kept.peak == codes + params and kept.levels[-1] == 0
    x.requires_grad_()
    with Kept() as kept:
        (x * x).sum().backward()
    assert kept.peak == x.nbytes and kept.levels[-1] == 0
    with Kept() as kept:
        nn.Linear(256, 8)(x).sum().backward()
    assert kept.levels == [0, x.nbytes, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [2, None])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_replayed_run_has_the_losses_of_one_that_the_host_launches(tmp_path, bits, dtype):
    ranks, config = Ranks(torch.device("cuda", 0)), replace(CONFIG, bits=bits, dtype=dtype, batch=8)
    training.deterministic()
    whole = train(config, 4, ranks)
    replayed = train(config, 4, ranks, graph=True)
    assert replayed.losses == whole.losses and len(set(whole.losses)) == 4
    train(config, 2, ranks, tmp_path, graph=True)
    assert train(config, 4, ranks, tmp_path, resume=True, graph=True).losses == whole.losses
    assert replayed.peaks[-1] >= 0.9 * whole.peaks[-1]  # what the graph takes is counted


def test_a_graph_wants_a_gpu():
    with pytest.raises(
        ValueError, match="^graph needs a GPU, alone or with ddp, but is given on cpu with one process$"
    ):
        train(CONFIG, 1, ALONE, graph=True)
    with pytest.raises(
        ValueError, match="^graph needs a GPU, alone or with ddp, but is given on cuda with fsdp"
    ):
        train(CONFIG, 1, Ranks(torch.device("cuda", 0), 0, 2, "fsdp"), graph=True)


# ---- the command


def test_the_command_trains_draws_and_tells(alone, tmp_path, capsys):
    files = ["--plot", str(tmp_path / "a" / "run.png"), "--json", str(tmp_path / "run.json")]
    assert train_vit.main(["--steps", "2", "--batch", "4", "--device", "cpu", *files]) == 0
    out, err = capsys.readouterr()
    told = json.loads((tmp_path / "run.json").read_text())
    loss = "loss {:.3f} to {:.3f} in 2 steps".format(*told["losses"])
    assert f"digits, packed into 2 bits: {loss}" in out and "of 297 test images right" in out
    assert told["config"]["batch"] == 4 and not err
    assert (tmp_path / "a" / "run.png").read_bytes().startswith(b"\x89PNG")
    packed, plain = (float(line.split(" MB")[0].split()[-1]) for line in out.split("; ")[-2:])
    assert packed < plain / 2


def test_the_command_says_how_to_go_on(alone, tmp_path, capsys, monkeypatch):
    at_step(monkeypatch, 1, lambda: os.kill(os.getpid(), signal.SIGINT))
    command = ["--batch", "4", "--steps", "3", "--device", "cpu", "--folder", str(tmp_path)]
    assert train_vit.main(command) == 128 + signal.SIGINT
    assert f"SIGINT after 2 of 3 steps; {tmp_path}/step-00000002 is saved" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("--bits 3", "bits must be 1, 2, 4 or 8, but is 3"),
        ("--bits 0", "bits must be 1, 2, 4 or 8, but is 0"),
        ("--rounding up", "rounding must be nearest or stochastic, but is 'up'"),
        ("--no-packing --bits 0", "bits and rounding must not be given with no-packing"),
        ("--steps 0", "steps must be an integer of at least 1, but is 0"),
        ("--batch 1501", "batch must be from 1 to 1500, the images of digits, but is 1501"),
        ("--lr 0", "lr must be a number above 0, but is 0.0"),
        ("--lr nan", "lr must be a number above 0, but is nan"),
        ("--dropout 1", "dropout must be at least 0 and below 1, but is 1.0"),
        ("--dtype float16", "dtype must be float32 or bfloat16, but is 'float16'"),
        ("--seed -1", "seed must be an integer of at least 0, but is -1"),
        ("--save-every -1", "save_every must be an integer of at least 0, but is -1"),
        ("--graph", "graph needs a GPU, alone or with ddp, but is given on cpu with one process"),
        ("--resume", "resume needs a folder"),
        ("--save-every 2", "save_every is 2, which needs a folder"),
        ("--folder {none} --resume", "has no complete checkpoint to resume"),
        ("--parallel ddp", "parallel is ddp, which needs torchrun to start the ranks: torchrun "),
        ("--folder {run}", "has step-00000002 in it: resume it, or name another folder"),
        ("--folder {run} --resume --bits 4", "was saved with bits 2, but this run has bits 4"),
        ("--folder {run} --resume --no-packing", "was saved with bits 2, but this run has bits None"),
        ("--folder {run} --resume --steps 2", "steps must be more than the 2 of"),
    ],
)
def test_bad_arguments_are_one_line(alone, saved, tmp_path, capsys, arguments, words):
    arguments = arguments.format(none=tmp_path, run=saved)
    given = ["--batch", "4", "--device", "cpu", *arguments.split()]
    assert train_vit.main(given) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "error: " in err and words in err


@pytest.mark.parametrize(
    "environment, arguments, words",
    [
        ({"WORLD_SIZE": "2"}, [], "torchrun started 2 ranks, which needs --parallel ddp or fsdp"),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, ["--parallel", "ddp"], "4 ranks for 2 GPUs"),
    ],
)
def test_ranks_that_do_not_fit(alone, monkeypatch, capsys, environment, arguments, words):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in {"RANK": "0", **environment}.items():
        monkeypatch.setenv(name, value)
    assert train_vit.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_batch_is_divided_evenly():
    with pytest.raises(ValueError, match="^batch must be a multiple of 3 on 3 ranks, but is 4$"):
        train(CONFIG, 1, replace(ALONE, count=3, parallel="ddp"))


# ---- two ranks


def two_ranks(rank, folder):
    """Losses of runs as they should be, and of the same interrupted; by parallel."""
    found = {}
    for parallel in PARALLEL:
        ranks = Ranks(torch.device("cpu"), rank, 2, parallel)
        found[parallel, "same"] = train(SAME, 2, ranks, folder / f"{parallel}-same").losses
        found[parallel, "whole"] = train(CONFIG, 3, ranks).losses
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1:  # one gets the signal, both leave
                at_step(patch, 0, lambda: os.kill(os.getpid(), signal.SIGTERM))
            stopped = train(CONFIG, 3, ranks, folder / parallel)
        assert len(stopped.losses) == 1 and stopped.stopped == signal.SIGTERM
        torch.manual_seed(99)
        found[parallel, "resumed"] = train(CONFIG, 3, ranks, folder / parallel, resume=True).losses
    return found


def test_two_ranks_train_as_one_does_and_resume_to_the_bit(tmp_path):
    first, second = together(two_ranks, tmp_path, folder=tmp_path)
    assert first == second
    alone = train(SAME, 3, ALONE).losses
    for parallel in PARALLEL:
        assert first[parallel, "same"] == pytest.approx(alone[:2], rel=1e-4)
        assert first[parallel, "resumed"] == first[parallel, "whole"]
        # One process goes on with what two have saved.
        folder = tmp_path / f"{parallel}-same"
        assert train(SAME, 3, ALONE, folder, resume=True).losses == pytest.approx(alone, rel=1e-4)


def waits_in_vain(rank, folder):
    """Rank 1 never comes to step 1, and rank 0, which waits for it, must leave."""
    others = [os.getpid()] * 2
    dist.all_gather_object(others, os.getpid())

    def never_comes():
        os.kill(others[0], signal.SIGTERM)
        deadline = time.monotonic() + 120
        while state_of(others[0]) != "Z" and time.monotonic() < deadline:
            time.sleep(0.05)
        os._exit(3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaving, "PATIENCE", 0.2)
        if rank == 1:
            at_step(patch, 1, never_comes)
        else:
            patch.setattr(sys, "stderr", open(folder / "said", "w"))
        train(PLAIN, 3, Ranks(torch.device("cpu"), rank, 2, "ddp"), folder / "run", save_every=1)


def state_of(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_rank_that_waits_in_vain_says_so_when_it_is_told_to_leave(tmp_path):
    with pytest.raises(AssertionError, match=r"\[1, 3\]"):
        together(waits_in_vain, tmp_path, folder=tmp_path)
    last = f"the last complete checkpoint is {tmp_path}/run/step-00000001"
    assert (tmp_path / "said").read_text() == f"error: rank 0 of 2 lost another rank in step 1: {last}\n"


def is_killed(rank, folder):
    ranks = Ranks(torch.device("cpu"), rank, 2, "fsdp")
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            at_step(patch, 1, lambda: os.kill(os.getpid(), signal.SIGKILL))
        try:
            train(PLAIN, 3, ranks, folder / "run", save_every=1)
        except RankLost as error:
            (folder / "said").write_text(str(error))
            os._exit(1)


def test_a_rank_that_is_killed_is_named_and_leaves_a_whole_checkpoint(tmp_path):
    with pytest.raises(AssertionError, match=r"\[1, -9\]"):
        together(is_killed, tmp_path, folder=tmp_path)
    last = checkpoints.newest(tmp_path / "run")
    assert last.name == "step-00000001"
    left = f"the last complete checkpoint is {last}"
    assert (tmp_path / "said").read_text() == f"rank 0 of 2 lost another rank in step 1: {left}"


@pytest.mark.torchrun
def test_a_rank_that_is_killed_ends_all_and_leaves_a_whole_checkpoint(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.lost_rank", "--parallel", "fsdp", "--device", "cpu", "--batch", "4"]
    command += ["--steps", "5", "--folder", str(folder), "--save-every", "2"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode != 0
    assert (
        f"rank 0 of 2 lost another rank in step 3: the last complete checkpoint is {folder}/step-00000002"
        in done.stderr
    )
    assert "SIGKILL" in done.stderr
    assert checkpoints.newest(folder).name == "step-00000002"
