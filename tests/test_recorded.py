"""The record of measured figures: whole, honest about its origin, and replaced as a whole."""

import datetime
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton

from puzzles_lib import timing
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.bench.__main__ import main
from puzzles_lib.timing import recorded


def a_row(**changed) -> recorded.Row:
    row = {"bench": "memory", "case": "2 bits, 64x64", "path": "pack", "us": 2.0, "baseline": "copy"}
    return {**row, "baseline_us": 1.0, "ratio": 0.5, "error": 0.0, **changed}


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As if there were one; only its name is asked for."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")


# ---- what the course quotes


FILES = (recorded.FILE, recorded.H100, recorded.LESSONS, recorded.RACE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_recorded_row_has_all_entries_and_a_ratio_that_is_one(file):
    found = recorded.load(file)["rows"]
    assert found
    for row in found:
        assert tuple(row) in [recorded.NAMES + more for more in recorded.MORE]
        assert all(isinstance(row[name], str) and row[name] for name in ("bench", "case", "path", "baseline"))
        assert row["us"] > 0 and row["error"] >= 0
        # The ratio was taken before the times were rounded to 0.01 us.
        rounding = 0.005 / row["us"] + 0.005 / row["baseline_us"]
        ratio = row["baseline_us"] / row["us"]
        assert row["ratio"] == pytest.approx(ratio, abs=ratio * rounding + 6e-5)


def test_no_figure_is_recorded_twice():
    whole = [row for file in FILES for row in recorded.load(file)["rows"]]
    keys = [(r["bench"], r["case"], r["path"], r["baseline"]) for r in whole]
    assert len(set(keys)) == len(keys)


def test_rows_are_those_of_one_bench():
    whole = [row for file in FILES for row in recorded.load(file)["rows"]]
    for bench in {row["bench"] for row in whole}:
        assert recorded.rows(bench) == [row for row in whole if row["bench"] == bench]
    assert recorded.rows("no such bench") == []


def test_about_tells_device_versions_and_date(tmp_path, monkeypatch):
    origin = {"device": "A", "versions": {"torch": "1.2", "triton": "3.4"}, "date": "2026-01-02"}
    record = {**origin, "dates": {}, "rows": []}
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert recorded.load(tmp_path / "r.json") == record
    other = {**record, "device": "B", "dates": {"ladder": "2026-01-01"}, "rows": [a_row(bench="ladder")]}
    files = dict.fromkeys(FILES, record) | {recorded.RACE: other}
    monkeypatch.setattr(recorded, "load", lambda path=recorded.FILE: files[path])
    assert recorded.about() == "recorded on one A (torch 1.2, triton 3.4) on 2026-01-02"
    assert recorded.about("ladder") == "recorded on one B (torch 1.2, triton 3.4) on 2026-01-01"


def test_every_bench_has_the_day_on_which_its_own_rows_were_recorded():
    for record in map(recorded.load, FILES):
        assert set(record["dates"]) == {row["bench"] for row in record["rows"]}
        assert record["date"] == max(record["dates"].values())


# ---- writing


def test_save_replaces_rows_of_the_same_bench_and_no_others(tmp_path, on_a_gpu):
    path = tmp_path / "r.json"
    recorded.save([a_row(path="one"), a_row(path="two")], path)
    recorded.save([a_row(bench="dw")], path)
    recorded.save([a_row(path="three")], path)
    record = recorded.load(path)
    assert [(row["bench"], row["path"]) for row in record["rows"]] == [("dw", "pack"), ("memory", "three")]
    assert record["device"] == "NVIDIA H200" and record["versions"]["triton"] == triton.__version__
    assert os.listdir(tmp_path) == ["r.json"]


def test_recording_one_bench_leaves_the_others_their_day(tmp_path, on_a_gpu, monkeypatch):
    path = tmp_path / "r.json"
    days = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
    monkeypatch.setattr(recorded.datetime, "date", SimpleNamespace(today=iter(days).__next__))
    for bench in ("memory", "dw", "memory"):
        recorded.save([a_row(bench=bench)], path)
    record = recorded.load(path)
    assert record["dates"] == {"dw": "2026-01-02", "memory": "2026-01-03"}
    assert record["date"] == "2026-01-03"


def test_what_is_saved_is_a_row_a_line_and_loads_as_it_was(tmp_path, on_a_gpu):
    path = tmp_path / "r.json"
    some = [a_row(), a_row(path="other", us=1 / 3)]
    recorded.save(some, path)
    assert recorded.load(path)["rows"] == some
    assert sum(line.startswith('    {"bench"') for line in path.read_text().splitlines()) == 2


def test_launches_are_kept_with_the_rows_of_their_path_and_the_compiler_that_made_them(tmp_path, on_a_gpu):
    path, told = (
        tmp_path / "r.json",
        {"one": {"digest": "a"}, "two": {"digest": "b"}, "none": {"digest": "c"}},
    )
    recorded.save([a_row(path="one")], path, compiler="9.9", launches=told)
    recorded.save([a_row(bench="grid", path="two")], path, compiler="9.9", launches=told)
    record = recorded.load(path)
    assert record["versions"]["triton"] == "9.9"
    assert record["launches"] == {name: told[name] for name in ("one", "two")}
    recorded.save([a_row(path="three")], path, compiler="9.9")
    assert list(recorded.load(path)["launches"]) == ["two"]


def test_clocks_are_kept_beside_the_rows_until_there_are_others(tmp_path, on_a_gpu):
    path = tmp_path / "r.json"
    recorded.save([a_row()], path)
    recorded.save([], path, clocks={"one": {"us": 1.0, "mhz": 1980.0, "watts": 700.0}})
    recorded.save([a_row(us=3.0)], path)
    record = recorded.load(path)
    assert record["clocks"]["one"]["mhz"] == 1980.0 and record["rows"][0]["us"] == 3.0


def disk_full(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("where", [(Path, "write_text"), (os, "replace")])
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, on_a_gpu, monkeypatch, where):
    path = tmp_path / "r.json"
    recorded.save([a_row()], path)
    before = path.read_bytes()
    monkeypatch.setattr(*where, disk_full)
    with pytest.raises(OSError, match="No space left"):
        recorded.save([a_row(us=9.0)], path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["r.json"]


@pytest.mark.parametrize(
    "row, words",
    [
        ({k: v for k, v in a_row().items() if k != "error"}, "it needs bench, case, path, us"),
        (a_row(note="?"), "note, it needs"),
        (a_row(error=float("nan")), "error is nan in memory, 2 bits, 64x64, pack"),
        (a_row(ratio=float("inf")), "ratio is inf"),
    ],
)
def test_a_row_that_is_none_is_refused_before_anything_is_written(tmp_path, on_a_gpu, row, words):
    with pytest.raises(ValueError, match=words):
        recorded.save([a_row(), row], tmp_path / "r.json")
    assert os.listdir(tmp_path) == []


def test_figures_of_two_devices_are_not_mixed(tmp_path, on_a_gpu, monkeypatch):
    path = tmp_path / "r.json"
    recorded.save([a_row()], path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another")
    with pytest.raises(ValueError, match="keeps rows recorded on NVIDIA H200, .* these are of another"):
        recorded.save([a_row(bench="dw")], path)
    recorded.save([a_row(us=3.0)], path)  # nothing of the other device is kept
    assert recorded.load(path)["device"] == "another"


# ---- showing


def test_a_table_has_a_line_for_every_row_with_all_of_it():
    some = [a_row(path="a long name, so long that no column was made for it"), a_row(ratio=1.25, error=2e-3)]
    head, first, second = recorded.table(some).splitlines()
    assert first.startswith("2 bits, 64x64 a long name, so long that no column was made for it  ")
    assert second.split() == "2 bits, 64x64 pack 2.0 copy 1.0 1.250 2.0e-03".split()
    assert head.index("ratio") == first.index("0.500") and len(first) == len(second) == len(head)


def test_report_prints_every_recorded_row_under_its_bench(capsys):
    main(["report"])
    text = capsys.readouterr().out
    rows = [row for file in FILES for row in recorded.load(file)["rows"]]
    lines = text.splitlines()
    for row in rows:
        wanted = (row["case"], row["path"], f"{row['us']:.1f}", row["baseline"], f"{row['ratio']:.3f}")
        assert any(all(part in line for part in wanted) for line in lines), row
    benches = list(dict.fromkeys(row["bench"] for row in rows))
    heads = [f"{bench}, {recorded.about(bench)}" for bench in benches]
    assert [line for line in lines if line in heads] == heads
    assert len(lines) == 3 * len(benches) - 1 + len(rows)  # a head, names and an empty line between them


def test_a_bench_makes_rows_that_can_be_recorded(tmp_path, on_a_gpu):
    error = timing.relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0]))
    made = timing.row(
        "dw", f"{recorded.bits_text(1)}, {recorded.bits_text(2)}", "ours", 2.0, "theirs", 5.0, error
    )
    assert made["case"] == "1 bit, 2 bits" and made["ratio"] == 2.5 and made["error"] == pytest.approx(0.1)
    recorded.save([made], tmp_path / "record.json")
    assert recorded.load(tmp_path / "record.json")["rows"] == [made]


BENCHES = ["memory", "row-wise", "dw", "ladder", "packed-weight", "norms", "orders"]


@pytest.mark.parametrize("command", BENCHES)
def test_a_bench_without_a_gpu_is_one_line(command, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([command]) == 1
    assert capsys.readouterr() == ("", f"error: bench {command} needs a CUDA device\n")


def test_two_gpus_are_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert main(["ranks"]) == 1
    assert capsys.readouterr() == ("", "error: bench ranks needs two CUDA devices\n")


@pytest.mark.parametrize("command", ["checks", "watch"])
def test_a_bench_of_the_masters_without_them_is_one_line(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("puzzles_lib.authoring.solutions.ROOT", tmp_path)
    solutions.cache_clear()
    try:
        assert main([command, "--json"]) == 1
    finally:
        solutions.cache_clear()
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("error: solutions/ has no notebooks")
