"""Runs the programs that figures are measured with, and prints the table of figures.

Servers run on one core and load on another. This module also reads the CPU time and memory of a
server, and runs the kernels alone.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

from figure_table import print_table

START_SECONDS = 120
WARMUP_SECONDS = 0.3


def note(text):
    """Prints progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def fail(text):
    """Prints an error and ends the run."""
    sys.exit('%s: %s' % (os.path.basename(sys.argv[0]), text))


def cores():
    """Returns the CPUs of servers and of load: the first two, or the only one, of this process."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1 if len(allowed) == 1 else 1]


SERVER_CPU, LOAD_CPU = cores()


class Server:
    """A server process that is pinned to some CPUs.

    It must log event=listening and event=ready on stderr.
    """

    def __init__(self, command, log, cpus=(SERVER_CPU,), start_seconds=START_SECONDS):
        self.log = log
        with open(log, 'w', encoding='utf-8') as stderr:
            self.process = subprocess.Popen(
                ['taskset', '-c', ','.join(map(str, cpus)), *command],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        deadline = time.monotonic() + start_seconds
        while 'event=ready' not in self.read_log():
            if self.process.poll() is not None or time.monotonic() > deadline:
                fail('%s did not start; its log ends with:\n%s'
                     % (command[0], self.read_log()[-4000:]))
            time.sleep(0.02)
        self.address = re.search(r'event=listening.*?(127\.0\.0\.1:\d+)', self.read_log())[1]

    def read_log(self):
        """Returns the log so far."""
        with open(self.log, encoding='utf-8', errors='replace') as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stop()

    @property
    def port(self):
        """Port of the server, as text."""
        return self.address.rpartition(':')[2]

    def stop(self):
        """Kills the server, because its unfinished work does not matter."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def cpu_ns(self):
        """Returns the CPU time of the server's threads, none of which ends while it serves."""
        folder = '/proc/%d/task' % self.process.pid
        total = 0
        for task in os.listdir(folder):
            with open('%s/%s/schedstat' % (folder, task), encoding='ascii') as file:
                total += int(file.read().split()[0])
        return total

    def resident_kib(self, which='VmRSS'):
        """Returns the server's resident memory in KiB: now, or at its peak if `which` is VmHWM."""
        with open('/proc/%d/status' % self.process.pid, encoding='ascii') as file:
            return int(re.search(which + r':\s*(\d+) kB', file.read())[1])

    def socket_count(self):
        """Returns the number of the server's open sockets."""
        folder = '/proc/%d/fd' % self.process.pid
        return sum(os.readlink('%s/%s' % (folder, name)).startswith('socket:')
                   for name in os.listdir(folder))


def on_load_cpu(command, gives_way=False):
    """Returns a command that runs on the CPU of the load.

    With `gives_way` it runs only while nothing else needs that CPU. Any effect on the load is then
    due to the server, not to competition for the load's CPU.
    """
    policy = ['chrt', '--idle', '0'] if gives_way else []
    return [*policy, 'taskset', '-c', str(LOAD_CPU), *command]


class Bench:
    """The programs of a build, and the folder for their files."""

    def __init__(self, build, work, scales, name='service'):
        self.build = build
        self.work = work
        self.scales = scales
        self.records = os.path.join(work, name + '.jsonl')
        os.makedirs(work, exist_ok=True)
        with open(self.records, 'w', encoding='utf-8'):
            pass

    def record(self, figure, **values):
        """Appends the raw measurements of a figure to the file of records."""
        with open(self.records, 'a', encoding='utf-8') as file:
            file.write(json.dumps({'figure': figure, **values}) + '\n')

    def program(self, name):
        """Returns the path of a program."""
        return os.path.join(self.build, name)

    def models(self, workload):
        """Returns the repository of a workload, which it makes if necessary."""
        scale = self.scales[workload]
        path = os.path.join(self.work, 'service-%s-%d' % (workload, scale))
        if not os.path.isdir(path):
            note('  making the model %s, scale %d' % (workload, scale))
            subprocess.run(
                [self.program('embag'), 'make-model', '--workload', workload, '--scale',
                 str(scale), path], check=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
        return path

    def serve(self, workload, *flags):
        """Starts embagd with one loop and one thread, on the tables of a workload."""
        return Server([self.program('embagd'), '--model-repository', self.models(workload),
                       '--listen', '127.0.0.1:0', '--http-listen', 'none', '--loops', '1',
                       '--threads', '1', *flags],
                      os.path.join(self.work, 'embagd.log'))

    def echo(self, mode, sizes, in_flight):
        """Starts a server that only moves bytes."""
        return Server([self.program('embag-echo-server'), mode, *map(str, sizes), str(in_flight)],
                      os.path.join(self.work, 'echo.log'))

    def floor(self, workload, sizes, in_flight, *arguments):
        """Starts a server that only moves bytes and computes answers with the kernels."""
        return Server([self.program('embag-bench'), '--no-peer', *self._tables(workload), '--serve',
                       '%d:%d:%d' % (*sizes, in_flight), *arguments],
                      os.path.join(self.work, 'floor.log'))

    def start_load(self, address, arguments, gives_way=False):
        """Starts embag-load as a process, which prints its report on standard output."""
        with open(os.path.join(self.work, 'load.log'), 'w', encoding='utf-8') as stderr:
            return subprocess.Popen(
                on_load_cpu([self.program('embag-load'), '--server', address, '--json',
                             *arguments], gives_way),
                stdout=subprocess.PIPE, stderr=stderr, text=True)

    def load_report(self, process):
        """Waits for embag-load and returns its report.

        Ends the run if any answer was wrong or lost.
        """
        out = process.communicate()[0]
        if not out:
            with open(os.path.join(self.work, 'load.log'), encoding='utf-8') as file:
                fail('embag-load printed no report:\n' + file.read())
        report = json.loads(out)
        if report['wrong'] or report['lost']:
            fail('answers were wrong or lost: ' + out)
        return report

    def load(self, server, arguments, seconds, is_warm=False):
        """Runs a load. Ends the run if a request fails. Returns the report.

        The report also has the server's CPU time per request as `cpu_us`, and its utilisation (0 to
        1) as `busy`.
        """
        whole = [*arguments, '--warmup', '0', '--duration']
        if not is_warm:
            self.load_report(self.start_load(server.address, [*whole, str(WARMUP_SECONDS)]))
        before, begun = server.cpu_ns(), time.monotonic()
        report = self.load_report(
            self.start_load(server.address, [*whole, str(seconds)]))
        seconds = time.monotonic() - begun
        cpu_ns = server.cpu_ns() - before
        if report['errors'] or report['unsent'] or not report['answers']:
            fail('requests failed: %s; %d were not sent'
                 % (report['errors_by_code'], report['unsent']))
        report['cpu_us'] = cpu_ns / 1e3 / report['answers']
        report['busy'] = cpu_ns / 1e9 / max(seconds, report['seconds'])
        return report

    def echo_load(self, server, sizes, in_flight, seconds):
        """Runs a load on an echo server or a floor. Returns its report, with `cpu_us`."""
        before = server.cpu_ns()
        done = subprocess.run(
            on_load_cpu([self.program('embag-echo-load'), server.port, *map(str, sizes),
                         str(in_flight), str(seconds)]),
            check=True, stdout=subprocess.PIPE, text=True)
        report = json.loads(done.stdout)
        report['cpu_us'] = (server.cpu_ns() - before) / 1e3 / report['answers']
        return report

    def kernel_us(self, *arguments):
        """Returns the time of the kernels alone for a request, including the check of indices."""
        done = subprocess.run(
            ['taskset', '-c', str(SERVER_CPU), self.program('embag-bench'), '--no-peer',
             '--no-roofline', '--repeats', '7', '--json', *arguments],
            check=True, stdout=subprocess.PIPE, text=True)
        report = json.loads(done.stdout)
        return report['us_per_call'] + report['check_us_per_call']

    def workload_kernel_us(self, workload, *arguments):
        """Returns the time of the kernels alone for a request to the tables of a workload."""
        return self.kernel_us(*self._tables(workload), *arguments)

    def _tables(self, workload):
        return ['--workload', workload, '--scale', str(self.scales[workload])]


class Sampler:
    """Samples a server's memory in the background."""

    def __init__(self, server, every_s=0.5):
        self.server = server
        self.every_s = every_s
        self.samples = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        begun = time.monotonic()
        while not self.is_over.wait(self.every_s):
            self.samples.append((time.monotonic() - begun, self.server.resident_kib()))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.is_over.set()
        self.thread.join()

    def at(self, seconds):
        """Returns the sample nearest to a time."""
        return min(self.samples, key=lambda sample: abs(sample[0] - seconds))[1]


def median(values):
    """Returns the median of an iterable."""
    return statistics.median(list(values))


def print_figures(figures, names, bench):
    """Calls the methods of `figures` that `names` lists, and prints the rows that they yield."""
    rows = []
    for name in names:
        note('%s (%d of them)' % (name, len(names)))
        rows.extend(getattr(figures, name)())
    print_table(rows)
    print('records: ' + bench.records)
