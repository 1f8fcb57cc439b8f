"""The record of measured figures: whole, honest about its origin, and replaced as a whole."""

import json
import os
from pathlib import Path

import pytest
import torch
import triton

from puzzles_lib.bench import recorded, results
from puzzles_lib.bench.__main__ import main


def a_row(**changed) -> recorded.Row:
    row = {"bench": "memory", "case": "2 bits, 64x64", "path": "pack", "us": 2.0, "baseline": "copy"}
    return {**row, "baseline_us": 1.0, "ratio": 0.5, "error": 0.0, **changed}


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As if there were one; only its name is asked for."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")


# ---- what the course quotes


def test_every_recorded_row_has_all_entries_and_a_ratio_that_is_one():
    found = recorded.load()["rows"]
    assert found
    for row in found:
        assert tuple(row) in (recorded.NAMES, recorded.NAMES + recorded.MORE)
        assert all(isinstance(row[name], str) and row[name] for name in ("bench", "case", "path", "baseline"))
        assert row["us"] > 0 and row["error"] >= 0
        # The ratio was taken before the times were rounded to 0.01 us.
        rounding = 0.005 / row["us"] + 0.005 / row["baseline_us"]
        ratio = row["baseline_us"] / row["us"]
        assert row["ratio"] == pytest.approx(ratio, abs=ratio * rounding + 6e-5)


def test_no_figure_is_recorded_twice():
    keys = [(r["bench"], r["case"], r["path"], r["baseline"]) for r in recorded.load()["rows"]]
    assert len(set(keys)) == len(keys)


def test_rows_are_those_of_one_bench():
    whole = recorded.load()["rows"]
    for bench in {row["bench"] for row in whole}:
        assert recorded.rows(bench) == [row for row in whole if row["bench"] == bench]
    assert recorded.rows("no such bench") == []


def test_about_tells_device_versions_and_date(tmp_path, monkeypatch):
    record = {"device": "A", "versions": {"torch": "1.2", "triton": "3.4"}, "date": "2026-01-02", "rows": []}
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert recorded.load(tmp_path / "r.json") == record
    monkeypatch.setattr(recorded, "load", lambda: record)
    assert recorded.about() == "recorded on one A (torch 1.2, triton 3.4) on 2026-01-02"


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


def test_what_is_saved_is_a_row_a_line_and_loads_as_it_was(tmp_path, on_a_gpu):
    path = tmp_path / "r.json"
    some = [a_row(), a_row(path="other", us=1 / 3)]
    recorded.save(some, path)
    assert recorded.load(path)["rows"] == some
    assert sum(line.startswith('    {"bench"') for line in path.read_text().splitlines()) == 2


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
    record = recorded.load()
    assert text.startswith(recorded.about())
    lines = text.splitlines()
    for row in record["rows"]:
        wanted = (row["case"], row["path"], f"{row['us']:.1f}", row["baseline"], f"{row['ratio']:.3f}")
        assert any(all(part in line for part in wanted) for line in lines), row
    benches = list(dict.fromkeys(row["bench"] for row in record["rows"]))
    assert [line for line in lines if line in benches] == benches
    assert len(lines) == 1 + sum(3 for _ in benches) + len(record["rows"])


def test_a_bench_makes_rows_that_can_be_recorded(tmp_path, on_a_gpu):
    error = results.relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0]))
    made = results.row(
        "dw", f"{recorded.bits_text(1)}, {recorded.bits_text(2)}", "ours", 2.0, "theirs", 5.0, error
    )
    assert made["case"] == "1 bit, 2 bits" and made["ratio"] == 2.5 and made["error"] == pytest.approx(0.1)
    recorded.save([made], tmp_path / "record.json")
    assert recorded.load(tmp_path / "record.json")["rows"] == [made]
