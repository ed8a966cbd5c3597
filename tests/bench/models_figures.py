"""Measures the figures of models.

These are versions that change under load, many models and tables, a large keyed table, the cost of
keys, and the speed of packing and checking files.

models.sh starts it. A figure is a method that yields rows of the table at the end. The raw
measurements go to the file of JSON lines that the table names. Failed requests and wrong answers
end the run.
"""

import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np

from embag.v1 import embedding_bag_pb2 as pb
from figure_options import ROWS_ASKED, read_options
from figure_table import Row, at_least, at_most, stated
from models_files import NAME, KeyedTable, keys_of, write_many
from rpc import Client
from service_run import LOAD_CPU, Bench, Server, fail, median, note, print_figures
from version_swapper import MODEL, VersionSwapper

GIB = 1 << 30
MIB = 1 << 20
IN_FLIGHT = '32'
SETTLE_SECONDS = 60
START_SECONDS = 900
KEYED_BYTES_ASKED = 16          # target for key and index, per row
SAMPLE = 1000
ERROR_INT8 = 1 / 510            # largest error as a fraction of a row's range (kernels/quantize.h)


def available_bytes():
    """Returns the available memory in bytes."""
    with open('/proc/meminfo', encoding='ascii') as file:
        return int(re.search(r'MemAvailable:\s*(\d+)', file.read())[1]) << 10


def all_cpus():
    """Returns the CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


def server_cpus():
    """Returns all CPUs but the load's if that leaves at least two, otherwise all."""
    return [cpu for cpu in all_cpus() if cpu != LOAD_CPU] if len(all_cpus()) > 2 else all_cpus()


def event_lines(server, event):
    """Returns the lines of an event in a server's log."""
    return [line for line in server.read_log().splitlines() if ' event=%s ' % event in line]


def log_value(line, key):
    """Returns the value of a key in a log line."""
    return re.search(r'\b%s=(\S+)' % key, line)[1]


def log_time(line):
    """Returns the time of a log line."""
    text = log_value(line, 'ts').replace('Z', '+00:00')
    return datetime.datetime.fromisoformat(text).timestamp()


def sum_values(server, event, key):
    """Returns the sum of a key over all log lines of an event."""
    return sum(int(log_value(line, key)) for line in event_lines(server, event))


def wait_for(condition, what):
    """Polls `condition` until it holds. Ends the run after SETTLE_SECONDS."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            fail('timed out after %d s, waiting for: %s' % (SETTLE_SECONDS, what))
        time.sleep(0.05)


class Figures:
    """The options of the command line, and the figures."""

    def __init__(self, bench, options):
        self.bench = bench
        self.options = options
        self.seconds = options.seconds

    @contextlib.contextmanager
    def repository(self, name):
        """Provides an empty repository, which is removed at the end."""
        path = os.path.join(self.bench.work, 'models-' + name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def serve(self, repository, *flags):
        """Starts embagd with default settings. Returns it and the seconds until it was ready."""
        begun = time.monotonic()
        server = Server([self.bench.program('embagd'), '--model-repository', repository,
                         '--listen', '127.0.0.1:0', '--http-listen', 'none', *flags],
                        os.path.join(self.bench.work, 'embagd.log'), server_cpus(), START_SECONDS)
        return server, time.monotonic() - begun

    def load(self, server, *arguments):
        """Runs a load. Ends the run if a request fails. Returns the report.

        An open load may leave some requests unsent if the machine has become slower since the rate
        was chosen. The percentiles include those requests.
        """
        return self._check(self.bench.load_report(self.bench.start_load(
            server.address, ['--timeout-us', '20000000', *arguments])))

    @staticmethod
    def _check(report):
        is_short = report['unsent'] and report['arrival'] == 'closed'
        if report['errors'] or is_short or not report['answers']:
            fail('requests failed: %s' % report)
        if report['unsent']:
            note('  %d of %d requests were not sent' % (report['unsent'], report['requests']))
        return report

    def closed(self, server, *arguments):
        """Runs a closed load, with some requests in flight. Returns its report."""
        return self.load(server, '--in-flight', IN_FLIGHT, '--duration',
                         str(min(self.seconds, 5)), *arguments)

    # Versions that change.

    def swap(self):
        """p99 of an open load while a new version arrives each second, and without new versions."""
        count, taken = round(self.seconds), []
        with self.repository('swap') as path:
            swapper = VersionSwapper([self.bench.program('embag'), 'make-model', '--workload',
                                      MODEL, '--scale', str(self.options.scale)], path)
            server = self.serve(path)[0]
            with server:
                first = 2
                asked = ['--workload', MODEL, '--verify', '--verify-ahead', str(count),
                         '--requests', '16', '--connections', '2']
                rate = 0.5 * self.closed(server, *asked)['requests_per_s']
                asked += ['--rate', '%.1f' % rate, '--duration', str(count)]
                for number in range(self.options.rounds):
                    versions = range(first, first + count)
                    swapper.prepare(versions)
                    taken.append(self._swap_round(server, swapper, versions, asked))
                    note('  swap %d/%d: %s' % (number + 1, self.options.rounds, ', '.join(
                        '%s %.4g' % pair for pair in taken[-1].items())))
                    self.bench.record('swap', rate=rate, **taken[-1])
                    first += count
        middle = {key: median(values[key] for values in taken) for key in taken[0]}
        yield Row('p99 while versions change / without',
                  at_most(1.2 if len(all_cpus()) > 2 else 2, 'x'), middle['ratio'],
                  '%.0f us, without %.0f us; %.0f requests/s, all verified; %d of %d swaps done'
                  % (middle['swap_us'], middle['calm_us'], rate,
                     sum(values['served'] for values in taken), count * len(taken)))
        yield Row('  a version renamed until it is served', stated('s'), middle['served_s'],
                  'median; %d MiB per version' % middle['version_mib'])
        yield Row('  memory after / before', at_most(1.05, 'x'), middle['memory'],
                  '%d MiB, before %d MiB' % (middle['after_mib'], middle['before_mib']))

    def _swap_round(self, server, swapper, versions, asked):
        """Runs a load without swaps, then one with a swap per second. Returns the measurements."""
        calm = self.load(server, *asked)
        before = server.resident_kib()
        process = self.bench.start_load(server.address, [*asked, '--timeout-us', '20000000'])
        time.sleep(1)   # The load warms up.
        swapper.publish_each_second(versions).join()
        swapped = self._check(self.bench.load_report(process))
        served = self._wait_settled(server, versions[-1])
        after = server.resident_kib()
        return {'calm_us': calm['p99_us'], 'swap_us': swapped['p99_us'],
                'ratio': swapped['p99_us'] / calm['p99_us'],
                'served_s': median(served[v] - swapper.renamed[v] for v in versions if v in served),
                'served': sum(v in served for v in versions),
                'version_mib': int(log_value(event_lines(server, 'model_loaded')[-1],
                                             'resident_bytes')) >> 20,
                'before_mib': before / 1024, 'after_mib': after / 1024, 'memory': after / before}

    @staticmethod
    def _wait_settled(server, version):
        """Waits until `version` is the only version in memory.

        Returns the times at which versions were first served. If a version arrives while the
        previous one still waits to be loaded, only the new one is loaded.
        """
        def served():
            return {int(log_value(line, 'version')): log_time(line)
                    for line in event_lines(server, 'model_serving')}
        wait_for(lambda: version in served(), 'the last version to be served')
        wait_for(lambda: len(event_lines(server, 'model_freed')) >= len(served()) - 1,
                 'all versions but the last to be freed')
        return served()

    # Many models, many tables.

    def many(self):
        """100 models of 10 tables, and one of them alone for comparison."""
        alone = self._many('one', 1, 10)
        yield from self._many_rows('100 models of 10 tables', self._many('many', 100, 10), alone)

    def wide(self):
        """A model of 1 000 tables, with lookups in all of them."""
        yield from self._many_rows('a model of 1 000 tables', self._many('wide', 1, 1000), None)

    def _many(self, name, models, tables):
        """Measures load time, memory and the rate of lookups in all tables of a model."""
        with self.repository(name) as path:
            write_many(path, models, tables, 1000, 32)
            server, start_s = self.serve(path)
            with server:
                file_bytes = models * tables * 1000 * 32 * 4
                values = {'start_s': start_s, 'file_mib': file_bytes / MIB,
                          'beside_mib': server.resident_kib() / 1024 - file_bytes / MIB}
                names = ','.join('t%03d' % table for table in range(tables))
                report = self.closed(server, '--model', 'm%02d' % (models // 2), '--tables', names,
                                     '--indices-per-bag', '3')
                values['per_s'] = report['requests_per_s']
        self.bench.record('many', models=models, tables=tables, load=report, **values)
        return values

    @staticmethod
    def _many_rows(what, values, alone):
        """Yields the rows of one repository."""
        yield Row(what + ': start until ready', stated('s'), values['start_s'],
                  '%.0f MiB of files, in the page cache' % values['file_mib'])
        yield Row('  memory beside the rows', stated('MiB'), values['beside_mib'],
                  'of the whole process')
        yield Row('  lookups of all tables of one', stated('/s'), values['per_s'],
                  '3 rows of each' + ('; where it is the only model: %.0f/s' % alone['per_s']
                                      if alone else ''))

    # A large keyed table.

    def large(self):
        """A table with rows of 16 values as int8 codes, with keys, from npy and packed."""
        rows = self.options.rows
        name = '%.3g M rows x 16 int8, keyed' % (rows / 1e6)
        missing = self._lacks(rows)
        if missing:
            yield Row(name, at_most(6, 'GiB'), None, missing)
            return
        table = KeyedTable(rows)
        with self.repository('npy') as npy, self.repository('packed') as packed:
            folder = os.path.join(npy, NAME, '1')
            note('  making %d rows' % rows)
            table.write(folder)
            with open(os.path.join(npy, NAME, 'model.yaml'), 'w', encoding='utf-8') as file:
                file.write('tables:\n- {name: %s, storage: int8}\n' % NAME)
            keys = os.path.join(folder, NAME + '.keys.npy')
            yield from self._large_rows(name + ', from npy', npy, table, keys)
            os.makedirs(os.path.join(packed, NAME, '1'))
            source, output = (os.path.join(folder, NAME + '.npy'),
                              os.path.join(packed, NAME, '1', NAME + '.embag'))
            seconds = self._time('pack', '--storage', 'int8', '--keys', keys, source, output)
            yield self._speed('  embag pack of it', seconds, os.path.getsize(source))
            shutil.rmtree(folder)
            seconds = self._time('check', output)
            yield self._speed('  embag check of that', seconds, os.path.getsize(output))
            yield from self._large_rows(name + ', packed', packed, table, output)

    @staticmethod
    def _lacks_text(what, needed, there):
        return '%s: %.1f GiB needed, %.1f GiB available' % (what, needed / GIB, there / GIB)

    def _lacks(self, rows):
        """Returns what is too small for the rows, disk or memory, as text; None if neither is."""
        disk, memory = rows * 120, rows * 64
        free = shutil.disk_usage(self.bench.work).free
        if free < disk:
            return self._lacks_text('disk', disk, free)
        if available_bytes() < memory:
            return self._lacks_text('memory', memory, available_bytes())
        return None

    def _large_rows(self, name, repository, table, keys):
        """Yields load time, memory and rate of a repository of the table, with keys in a file."""
        server, start_s = self.serve(repository)
        with server:
            self._check_answers(server, table)
            report = self.closed(server, '--tables', NAME, '--bags', '64', '--indices-per-bag',
                                 '20', '--keys-file', keys)
            resident = server.resident_kib() << 10
            each = sum_values(server, 'model_loaded', 'resident_bytes') / table.rows
            most = server.resident_kib('VmHWM') << 10
        values = {'start_s': start_s, 'resident_bytes': resident, 'row_bytes': each,
                  'per_s': report['requests_per_s']}
        self.bench.record('large', name=name, most=most, load=report, **values)
        yield Row(name + ': memory', at_most(6 * table.rows / ROWS_ASKED, 'GiB'), resident / GIB,
                  'whole process; %.2f GiB at most while loading' % (most / GIB))
        yield Row('  keys and index', at_most(KEYED_BYTES_ASKED, 'B/row'), each - 24,
                  'and 24 of codes, scale and bias')
        yield Row('  start until ready', stated('s'), start_s, 'files in the page cache')
        yield Row('  lookups of 64 bags of 20 keys', stated('/s'), values['per_s'],
                  '%.3g M keys/s' % (values['per_s'] * 1280 / 1e6))

    @staticmethod
    def _check_answers(server, table):
        """Checks that random keys have the rows that were written, within the rounding of codes."""
        rows = np.random.default_rng(9).integers(0, table.rows, SAMPLE)
        keys = keys_of(rows, table.rows).astype('<i8')
        query = pb.BagQuery(table=NAME, indices_i64=keys.tobytes(),
                            offsets_i64=np.arange(SAMPLE, dtype='<i8').tobytes())
        with Client(server.address) as client:
            result, = client.lookup(pb.LookupRequest(model=NAME, queries=[query])).results
        got, want = np.frombuffer(result.values, '<f4').reshape(SAMPLE, -1), table.values(rows)
        allowed = np.ptp(want, axis=1, keepdims=True) * ERROR_INT8 + 1e-5
        if not (np.abs(got - want) <= allowed).all():
            fail('lookups by key returned wrong rows')

    def _time(self, *arguments):
        """Runs embag with arguments. Returns the seconds that it takes."""
        begun = time.monotonic()
        done = subprocess.run([self.bench.program('embag'), *arguments], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            fail('embag %s failed:\n%s' % (arguments[0], done.stderr))
        return time.monotonic() - begun

    def _speed(self, name, seconds, size):
        """Returns the table row for a command that has read `size` bytes in `seconds`."""
        self.bench.record('speed', name=name, seconds=seconds, bytes=size)
        return Row(name, stated('MiB/s'), size / MIB / seconds,
                   'of its input; %.1f s' % seconds)

    # What keys cost.

    def keys(self):
        """Rate by key divided by rate by row, on one thread, in memory."""
        needed = 2 * self.options.keyed_bytes
        if available_bytes() < needed:
            yield Row('rows/s by key / by row', at_least(0.7, 'x'), None,
                      self._lacks_text('memory', needed, available_bytes()))
            return
        done = subprocess.run(
            ['taskset', '-c', str(LOAD_CPU), self.bench.program('embag-bench'), '--keyed',
             '--no-peer', '--no-roofline', '--json', '--row-type', 'f32,int8', '--dim', '64,128',
             '--table-bytes', str(self.options.keyed_bytes)],
            check=True, stdout=subprocess.PIPE, text=True)
        for cell in map(json.loads, done.stdout.splitlines()):
            self.bench.record('keys', **cell)
            yield Row('rows/s by key / by row, %(row_type)s of %(dim)d' % cell,
                      at_least(0.7, 'x'), cell['keyed_ratio'],
                      '%.1f M rows; check %.1f ns/row, by key %.1f; index built in %.0f ns/row' % (
                          cell['rows'] / 1e6, cell['check_ns_per_row'],
                          cell['keyed_check_ns_per_row'], cell['key_build_ns_per_row']))

    # Packing.

    def pack(self):
        """embag pack and embag check on rows of 64 f32."""
        rows = self.options.pack_rows
        with self.repository('pack') as path:
            source = os.path.join(path, 'rows.npy')
            np.save(source, np.random.default_rng(3).random((rows, 64), dtype='f4'))
            for storage in ('f32', 'f16', 'int8', 'int4'):
                output = os.path.join(path, storage + '.embag')
                seconds = self._time('pack', '--storage', storage, source, output)
                yield self._speed('embag pack, f32 to ' + storage, seconds,
                                  os.path.getsize(source))
                seconds = self._time('check', output)
                yield self._speed('  embag check of that', seconds, os.path.getsize(output))


def main():
    options = read_options('models.sh', sys.argv[1:])
    bench = Bench(options.build, options.work or os.path.join(options.build, 'bench'), {},
                  'models')
    print_figures(Figures(bench, options), options.figures, bench)


if __name__ == '__main__':
    main()
