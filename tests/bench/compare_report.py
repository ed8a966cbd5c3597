"""Writes tables and a chart of compare.sh's measurements.

    compare_report.py RESULTS DIRECTORY TEXT...

It reads the lines of RESULTS, writes compare.md and compare.svg to DIRECTORY, and prints
compare.md. TEXT describes where and how it was measured. A ratio is the median of the ratios of all
turns.
"""

import collections
import json
import os
import statistics
import sys

import compare_chart

BASE = ("grpc++", "unary")
CHART_BAGS = {"dlrm-v2": "one sample of dlrm-v2", "rows": "rows, 10 bags"}
# Required ratio of rows per second of a core, embag to Redis, by number of bags.
ROWS_ASKED = {1: 0.9, 10: 2.0, 100: 2.0}
UNARY_ASKED = 0.5
STREAM_ASKED = 0.35


def read_lines(path):
    """Returns the results, one from each line."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def group(lines, part, workload):
    """Returns the lines of a part, in order, by bags, server and mode."""
    groups = collections.defaultdict(list)
    for line in lines:
        if line["part"] == part and line["workload"] == workload:
            groups[line["load"]["bags"], line["server"], line["mode"]].append(line)
    return groups


def median_of(lines, key):
    """Returns the median of a key in the lines, or in the load reports in them."""
    return statistics.median(line[key] if key in line else line["load"][key] for line in lines)


def median_ratio(lines, base):
    """Returns the median of the ratios of CPU time, turn by turn."""
    return statistics.median(a["cpu_us"] / b["cpu_us"] for a, b in zip(lines, base))


def busy(lines):
    """Returns the percentage of its core that the server used."""
    return statistics.median(line["cpu_us"] * line["load"]["requests_per_s"] / 1e4
                             for line in lines)


def table(heads, rows):
    """Returns the lines of a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def name_of(server, mode):
    return f"{server.replace('-', ', ')} {mode}"


def judge(measured, asked, at_most):
    """Returns the text of a ratio with its target."""
    reached = measured <= asked if at_most else measured >= asked
    return f"{measured:.2f} ({'at most' if at_most else 'at least'} {asked}: " \
           f"{'reached' if reached else 'not reached'})"


def tell_cpu(lines):
    """Returns the lines on one sample of dlrm-v2."""
    groups = group(lines, "cpu", "dlrm-v2")
    sizes = group(lines, "bytes", "dlrm-v2")
    if not groups:
        return []
    base = groups[(1, *BASE)]
    rows = []
    for (bags, server, mode), runs in groups.items():
        same_mode = groups[bags, "grpc++", mode]
        counted = sizes.get((bags, server, mode))
        rows.append([
            name_of(server, mode), f"{median_of(runs, 'cpu_us'):.1f}",
            f"{median_ratio(runs, base):.2f}", f"{median_ratio(runs, same_mode):.2f}",
            f"{median_of(runs, 'requests_per_s'):.0f}", f"{busy(runs):.0f} %",
            f"{median_of(runs, 'p50_us'):.0f} / {median_of(runs, 'p99_us'):.0f}",
            f"{counted[0]['wire_bytes']}" if counted else "",
            f"{runs[-1]['rss_mib']}"])
    text = ["One sample of `dlrm-v2` (26 queries, 214 rows), "
            f"{base[0]['load']['in_flight']} in flight on one connection:", ""]
    text += table(["", "server CPU us per lookup", "of grpc++ unary", "of grpc++, same mode",
                   "lookups/s", "core busy", "p50 / p99 us", "bytes per answer", "RSS MiB"], rows)
    unary = median_ratio(groups[1, "embag", "unary"], base)
    stream = median_ratio(groups[1, "embag", "stream"], base)
    return text + ["embag / grpc++ with the plain loop, CPU: "
                   f"unary {judge(unary, UNARY_ASKED, True)}, "
                   f"embag stream / grpc++ unary {judge(stream, STREAM_ASKED, True)}.", ""]


def rows_per_core_second(lines):
    return statistics.median(line["load"]["rows_per_request"] / line["cpu_us"] * 1e6
                             for line in lines)


def tell_rows(lines):
    """Returns the lines on rows of one table, against Redis."""
    groups = group(lines, "cpu", "rows")
    sizes = group(lines, "bytes", "rows")
    rows = []
    for bags in sorted({bags for bags, _, _ in groups}):
        ours, theirs = groups[bags, "embag", "stream"], groups[bags, "Redis", "mget"]
        ratio = statistics.median(b["cpu_us"] / a["cpu_us"] for a, b in zip(ours, theirs))
        for server, runs in (("embag stream", ours), ("Redis MGET", theirs)):
            counted = sizes[bags, runs[0]["server"], runs[0]["mode"]]
            rows.append([
                f"{bags}", server, f"{median_of(runs, 'cpu_us'):.2f}",
                f"{rows_per_core_second(runs) / 1e3:.0f} k",
                judge(ratio, ROWS_ASKED[bags], False) if runs is ours else "",
                f"{median_of(runs, 'requests_per_s'):.0f}", f"{busy(runs):.0f} %",
                f"{median_of(runs, 'p50_us'):.0f} / {median_of(runs, 'p99_us'):.0f}",
                f"{counted[0]['wire_bytes']}" if counted else "", f"{runs[-1]['rss_mib']}"])
    if not rows:
        return []
    return ["Bags of one row of 64 f32 of the workload `rows`, "
            f"{ours[0]['load']['in_flight']} in flight on one connection:", ""] + table(
        ["bags", "", "server CPU us per request", "rows/s of a core", "embag / Redis",
         "requests/s", "core busy", "p50 / p99 us", "bytes per answer", "RSS MiB"], rows)


def tell_curves(lines, workload):
    """Returns the lines on the rates that servers kept up with, and on latencies below them."""
    groups = group(lines, "curve", workload)
    rows = []
    for (_, server, mode), runs in groups.items():
        kept = [run["load"] for run in runs if run["kept_up"]]
        if not kept:
            continue
        half = min(kept, key=lambda load: abs(load["rate"] - 0.5 * kept[-1]["rate"]))
        rows.append([name_of(server, mode), f"{kept[-1]['rate']:.0f}"] + [
            f"{load['rate']:.0f}: {load['p50_us']:.0f} / {load['p99_us']:.0f} / "
            f"{load['p999_us']:.0f}" for load in (kept[0], half)])
    if not rows:
        return []
    return [f"Open loop, {CHART_BAGS[workload]}, requests/s: p50 / p99 / p99.9 us", ""] + table(
        ["", "kept up with, requests/s", "at the lowest rate", "at half of what it kept up with"],
        rows)


def make_panels(lines):
    """Returns a panel for each workload and quantile that was measured."""
    panels = []
    for workload, title in CHART_BAGS.items():
        groups = group(lines, "curve", workload)
        for key, name in (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9")):
            curves = {name_of(server, mode):
                      [(run["load"]["rate"], run["load"][key]) for run in runs]
                      for (_, server, mode), runs in groups.items()}
            if any(y > 0 for curve in curves.values() for _, y in curve):
                panels.append(compare_chart.Panel(f"{title}: {name}", curves))
    return panels


def main():
    path, directory, *text = sys.argv[1:]
    lines = read_lines(path)
    report = [" ".join(text) + ".", ""] + tell_cpu(lines) + tell_rows(lines)
    for workload in CHART_BAGS:
        report += tell_curves(lines, workload)
    panels = make_panels(lines)
    if panels:
        with open(os.path.join(directory, "compare.svg"), "w", encoding="utf-8") as file:
            file.write(compare_chart.draw(panels, " ".join(text)))
        report += [f"The curves are in {os.path.join(directory, 'compare.svg')}."]
    with open(os.path.join(directory, "compare.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(report) + "\n")
    print("\n".join(report))


if __name__ == "__main__":
    main()
