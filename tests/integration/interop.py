#!/usr/bin/python3
"""Runs stock gRPC clients against embagd over every transport, balances them over several servers,
drains a server under load, and checks its HTTP/2 with h2spec.

    tests/integration/interop.py --embagd PATH --build DIR --work DIR SUITE...

A suite is grpcio, grpc-js, grpc-go, grpc++, balance, drain, grpcurl or h2spec. A suite whose tools
are not available on this machine is skipped, and a line says so. Prints "N passed, N failed" at the
end; the exit status is 0 if none failed.
"""

import argparse
import os
import re
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(TESTS, 'integration')
SOURCE = os.path.dirname(TESTS)
NOT_HERE = 77  # exit status of a build script if a tool or package is not available
CLIENT_SECONDS = 120
BUILD_SECONDS = 300
# h2spec expects a connection error in a case where HTTP/2 allows a client to skip a stream number.
H2SPEC_FAILURES = {'http2/5.1.1/2'}
H2SPEC_MODULE = 'github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible'
GRPCURL_MODULE = 'github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.1'
# h2spec case 4.2/3 sends two header fields of this size, so that its frame exceeds the largest that
# the server accepts.
H2SPEC_LARGE_HEADER = '60000'


class Counts:
    """Counts the "ok" and "FAIL" lines of clients."""

    def __init__(self):
        self.passed = self.failed = 0

    def take(self, what, output, status):
        """Adds one client's output and exit status to the counts."""
        for line in output.splitlines():
            if re.match(r'(ok|FAIL) ', line):
                print('%s: %s' % (what, line))
        passed = len(re.findall(r'^ok ', output, re.M))
        failed = len(re.findall(r'^FAIL ', output, re.M))
        if status != 0 and not failed or not passed and not failed:
            print('FAIL: %s exited with status %d:\n%s' % (what, status, output[-4000:]))
            failed += 1
        self.passed += passed
        self.failed += failed

    def skip(self, what, why):
        """Reports a suite that cannot run on this machine."""
        print('%s: skipped, %s' % (what, why))


def run_program(command, seconds=CLIENT_SECONDS, **keywords):
    """Returns the output and exit status of a program. A program that hangs counts as failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False, **keywords)
        return done.stdout.decode('utf-8', 'replace'), done.returncode
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b'').decode('utf-8', 'replace') + '\ntimed out', 1


class Server:
    """An embagd with a small and a large table and these flags. `transports` lists the ways to
    reach it: a name and the arguments for a client."""

    def __init__(self, *flags):
        import numpy as np

        from embagd_process import Embagd, Repository
        from served import spec_table
        from table_files import Table, write_model
        self.repository = Repository()
        large = Table.of_values('large', 'f32', np.zeros((64, 4096)))
        write_model(self.repository.path, 'spec', 1, [spec_table(), large])
        unix = 'unix:' + self.repository.join('socket')
        self.process = Embagd(self.repository.path, '--header-timeout-ms', '1000',
                              *flags, listen=('127.0.0.1:0', unix)).wait_ready()
        self.transports = [
            ('h2c', ['--target', self.process.address]),
            ('unix socket', ['--target', unix]),
        ]

    def stop(self):
        """Drains the server; raises AssertionError if it does not exit cleanly."""
        self.process.stop()
        self.repository.remove()


class SecureServers:
    """Two servers with TLS, one of which also requires client certificates."""

    def __init__(self):
        from certificates import HERE as NAMES
        from certificates import Authority
        self.authority = Authority()
        self.authority.issue('server', names=NAMES)
        self.authority.issue('client', names='DNS:client.example')
        path = self.authority.path
        own = ['--tls-cert', path('server.pem'), '--tls-key', path('server.key')]
        self.servers = [Server(*own), Server(*own, '--tls-client-ca', path('ca.pem'))]
        ports = ['localhost:%d' % server.process.port for server in self.servers]
        shown = ['--cert', path('client.pem'), '--key', path('client.key')]
        self.transports = [
            ('TLS', ['--target', ports[0], '--ca', path('ca.pem')]),
            ('mutual TLS', ['--target', ports[1], '--ca', path('ca.pem'), *shown]),
        ]

    def stop(self):
        """Drains both servers."""
        for server in self.servers:
            server.stop()
        self.authority.remove()


def build_go(options):
    """Returns the folder of the Go programs; (None, why) if they cannot be built here."""
    work = os.path.join(options.work, 'go')
    output, status = run_program([os.path.join(HERE, 'go', 'build.sh'), work], BUILD_SECONDS)
    if status == NOT_HERE:
        return None, output.strip().splitlines()[-1]
    if status != 0:
        raise AssertionError('the Go client does not build:\n' + output[-4000:])
    return os.path.join(work, 'bin'), ''


def install_go(options, module):
    """Returns the path of a program installed by `go install`, or None if it is not available."""
    bin_folder = os.path.abspath(os.path.join(options.work, 'go', 'bin'))
    program = os.path.join(bin_folder, os.path.basename(module.split('@')[0]))
    environment = {**os.environ, 'GOBIN': bin_folder, 'GOFLAGS': '-buildvcs=false',
                   'PATH': os.environ['PATH'] + ':/usr/local/go/bin'}
    if not os.path.exists(program):
        try:
            run_program(['go', 'install', module], BUILD_SECONDS, env=environment)
        except FileNotFoundError:
            return None
    return program if os.path.exists(program) else None


def client_command(suite, options):
    """Returns the command line of a client and its environment; (None, why) if it is not
    available."""
    paths = os.path.join(options.build, 'python'), os.path.join(TESTS, 'lib')
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
    if suite == 'grpcio':
        return [sys.executable, os.path.join(HERE, 'interop_client.py')], environment
    if suite == 'grpc++':
        program = os.path.join(options.build, 'embag-interop-grpcpp')
        return ([program], environment) if os.path.exists(program) else (None, 'it is not built')
    if suite == 'grpc-js':
        modules = os.path.join(options.work, 'node', 'node-modules', 'node_modules')
        if not os.path.isdir(modules):
            return None, 'its packages are not there'
        return (['node', os.path.join(HERE, 'node', 'interop_client.js')],
                {**environment, 'NODE_PATH': os.path.abspath(modules)})
    folder, why = build_go(options)
    return ([os.path.join(folder, 'interop')], environment) if folder else (None, why)


def run_client(suite, options, transports, counts):
    """Runs one client over every transport."""
    command, environment = client_command(suite, options)
    if not command:
        counts.skip(suite, environment)
        return
    for name, arguments in transports:
        output, status = run_program([*command, *arguments], env=environment)
        counts.take('%s over %s' % (suite, name), output, status)


def run_drain(options, server, counts):
    """Runs lookups while one server drains and its clients fail over to another. Without a retry
    policy, gRPC resends only requests that it had not sent yet."""
    program = os.path.join(options.build, 'embag-interop-grpcpp')
    if not os.path.exists(program):
        counts.skip('drain', 'grpc++ is not built')
        return
    other = Server()
    target = 'ipv4:%s,%s' % (other.process.address, server.process.address)
    clients = [subprocess.Popen([program, '--target', target, '--drain'], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE) for _ in range(4)]
    time.sleep(2)  # lets the load run before the drain
    other.stop()
    time.sleep(2)  # lets the load run after the drain
    for number, client in enumerate(clients):
        output, _ = client.communicate(b'\n', timeout=CLIENT_SECONDS)
        text = output.decode()
        counts.take('drain under grpc++ %d' % number, text, client.returncode)
        print('drain: %s' % text.splitlines()[0])


def run_balance(options, _, counts):
    """Runs clients with the service configuration of client/CLIENTS.md."""
    import balance
    balance.run(options, build_go, counts)


def run_grpcurl(options, server, counts):
    """Lists services and makes a call by reflection alone."""
    program = install_go(options, GRPCURL_MODULE)
    if not program:
        counts.skip('grpcurl', 'not available from a Go module proxy')
        return
    call = [program, '-plaintext']
    output, status = run_program([*call, server.process.address, 'list'])
    good = status == 0 and 'embag.v1.EmbeddingBag' in output
    counts.take('grpcurl', '%s list\n%s' % ('ok' if good else 'FAIL', output), status)
    request = '{"model": "spec", "queries": [{"table": "emb_table", "indices": [0], "numBags": 1}]}'
    output, status = run_program([*call, '-d', request, server.process.address,
                                  'embag.v1.EmbeddingBag/Lookup'])
    good = status == 0 and '"values"' in output
    counts.take('grpcurl', '%s call\n%s' % ('ok' if good else 'FAIL', output), status)


def h2spec_failures(report):
    """Returns the set of cases that failed, as SECTION/NUMBER, and the number of all cases."""
    import xml.etree.ElementTree as tree
    failed, count = set(), 0
    for suite in tree.parse(report).getroot().iter('testsuite'):
        for number, case in enumerate(suite.findall('testcase'), 1):
            count += 1
            if case.find('failure') is not None or case.find('error') is not None:
                failed.add('%s/%d' % (suite.get('package'), number))
    return failed, count


def run_h2spec(options, server, counts):
    """Runs every h2spec case. The cases in H2SPEC_FAILURES may fail: there the RFC leaves a
    choice."""
    program = install_go(options, H2SPEC_MODULE)
    if not program:
        counts.skip('h2spec', 'not available from a Go module proxy')
        return
    report = os.path.join(options.work, 'h2spec.xml')
    call = [program, '-p', str(server.process.port), '-P', '/embag.v1.EmbeddingBag/Lookup',
            '-j', report]
    output, _ = run_program(call)
    failed, count = h2spec_failures(report)
    if 'http2/4.2/3' in failed:
        run_program([*call, 'http2/4.2', '--max-header-length', H2SPEC_LARGE_HEADER])
        failed = failed - {'http2/4.2/3'} | h2spec_failures(report)[0]
    lines = ['FAIL %s' % case for case in sorted(failed - H2SPEC_FAILURES)]
    lines += ['ok %d cases' % (count - len(failed))]
    counts.take('h2spec', '\n'.join(lines), 0)
    if failed - H2SPEC_FAILURES:
        print(output[-4000:])


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--embagd', required=True, help='the server')
    parser.add_argument('--build', required=True, help='build folder of a release build')
    parser.add_argument('--work', required=True, help='folder in which clients are built')
    parser.add_argument('suites', nargs='+')
    options = parser.parse_args()
    sys.path[:0] = [HERE, os.path.join(TESTS, 'lib')]
    from run import generate_messages, sanitizer
    generate_messages(os.path.abspath(options.build))
    import embagd_process
    import summary
    embagd_process.EMBAGD = os.path.abspath(options.embagd)
    embagd_process.SANITIZE = sanitizer(options.build)
    special = {'balance': run_balance, 'drain': run_drain, 'grpcurl': run_grpcurl,
               'h2spec': run_h2spec}
    counts = Counts()
    server = Server()
    secure = SecureServers()
    try:
        for suite in options.suites:
            if suite in special:
                special[suite](options, server, counts)
            else:
                run_client(suite, options, server.transports + secure.transports, counts)
    finally:
        server.stop()
        secure.stop()
    return summary.say(counts.passed, counts.failed)


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    sys.exit(main())
