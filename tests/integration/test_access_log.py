"""The access log: which requests have lines, what the lines report, and that none can be forged."""

import fcntl
import json
import os
import re
import subprocess
import time
import urllib.request

import numpy as np

from attacker import Attacker
from certificates import HERE
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, clean_environment, wait_until
from h2raw import DATA, HEADERS, Connection, call_fields, frame, header_encode, message
from rpc import SERVICE, Admin, Client, Requests, SecureClient, as_bytes, error_of
from served import OwnServerTest
from table_files import Table
from test_auth import ALL, CHIEF, RANKING, AuthTest, request_of
import embagd_process
import served

SECONDS = 60
SLOW_MAX = 32   # requests that the status page shows
TRACE, SPAN = '4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'
PARENT = '00-%s-%s-' % (TRACE, SPAN)
FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)(?: |$)')
# These keys differ between two runs.
VARYING = {'ts', 'peer', 'total_us', 'queue_us', 'compute_us', 'address', 'elapsed_ms', 'start_ms',
           'log_format'}
ESCAPES = {b'n': b'\n', b'r': b'\r', b't': b'\t', b'"': b'"', b'\\': b'\\'}
# Names of models that would forge or break a line if they were not escaped.
HOSTILE = ['a"b', 'a\nts=2026 level=info event=request code=OK', 'a\\', 'a b=c', '"},{"event":"x',
           '\u2028event=request', '\x1b[2J', '\u202ea', 'x' * 255, '\n' * 255, '"' * 255]
MANY = ('--access-log-per-s-max', '1000000', '--loops', '1')


def unescape(value):
    """Returns the text that an escaped value stands for."""
    if not value.startswith('"'):
        return value
    plain = re.sub(rb'\\(x[0-9a-f]{2}|.)', lambda m: ESCAPES.get(m.group(1)) or
                   bytes([int(m.group(1)[1:], 16)]), value[1:-1].encode())
    return plain.decode(errors='replace')


def fields_of(line):
    """Returns a line of the log as a dict; the line must be complete and well-formed."""
    at, fields = 0, {}
    while at < len(line):
        match = FIELD.match(line, at)
        assert match and match.group(1) not in fields, 'malformed: %r at %d' % (line, at)
        fields[match.group(1)] = unescape(match.group(2))
        at = match.end()
    return fields


def lines_of(server, event='request'):
    """Returns all lines of an event so far."""
    return [fields for fields in map(fields_of, list(server.lines)) if fields['event'] == event]


def trace_of(line):
    """Returns the traceparent in a line, or None."""
    if 'trace_id' not in line:
        return None
    return '00-%s-%s-%s' % (line['trace_id'], line['span_id'],
                            '01' if line['sampled'] == 'true' else '00')


def bad_request():
    """Returns a request for a model that does not exist."""
    return request_of('none')


class AccessLogTest(OwnServerTest):
    """Servers whose log is read after they have exited."""

    def setUp(self):
        super().setUp()
        self.clients = []

    def connect(self, server):
        client = super().connect(server)
        self.clients.append(client)
        return client

    def finish(self, server):
        """Stops a server without waiting for clients; returns the lines of its requests."""
        for client in self.clients:
            client.close()
        server.stop()
        return lines_of(server)

    def call(self, server, request, *metadata, method='Lookup'):
        """Makes a unary call with metadata."""
        return self.connect(server).unary(method, pb.LookupResponse)(
            request, metadata=list(metadata), timeout=SECONDS)


class Modes(AccessLogTest):
    def requests(self, *flags):
        """Makes twenty good requests and three that fail; returns their lines."""
        server = self.serve('--loops', '1', *flags)
        client = self.connect(server)
        for _ in range(20):
            client.lookup(request_of('spec'))
        for _ in range(3):
            error_of(client.lookup, bad_request())
        return [line['code'] for line in self.finish(server)]

    def test_logs_what_its_mode_says(self):
        good, failed = ['OK'], ['NOT_FOUND'] * 3
        for flags, codes in (
                ((), failed),
                (('--access-log', 'errors'), failed),
                (('--access-log', 'off'), []),
                (('--access-log', 'all'), good * 20 + failed),
                (('--access-log', 'sampled'), good + failed),
                (('--access-log', 'sampled', '--access-log-sample', '7'), good * 3 + failed),
                (('--access-log', 'sampled', '--access-log-sample', '1'), good * 20 + failed)):
            with self.subTest(flags=flags):
                self.assertEqual(self.requests(*flags), codes)

    def test_says_nothing_where_the_log_is_to_be_quiet(self):
        self.serve().stop()
        path = 'unix:' + self.repository.join('socket')
        server = Embagd(self.repository.path, '--access-log', 'all', '--log-level', 'warn',
                        listen=(path,))
        self.addCleanup(server.stop)
        with Client(path) as client:
            wait_until(lambda: error_of(client.lookup, bad_request())[0].name == 'NOT_FOUND',
                       SECONDS, 'an answer')
        self.assertEqual(self.finish(server), [])

    def test_refuses_invalid_settings(self):
        for flags, text in ((('--access-log', 'some'), 'errors|off|sampled|all'),
                            (('--access-log-sample', '0'), 'access-log-sample'),
                            (('--access-log-per-s-max', '0'), 'access-log-per-s-max')):
            server = Embagd(self.repository.path, *flags)
            self.assertIn(text, server.start_fails())

    def test_samples_exactly_over_streams_and_calls(self):
        server = self.serve('--access-log', 'sampled', '--access-log-sample', '10', *MANY)
        client = self.connect(server)
        request = request_of('spec')
        sent = []
        for number in range(1000):
            sent.append(pb.LookupRequest())
            sent[-1].CopyFrom(request)
            sent[-1].request_id = number
        self.assertEqual(len(list(client.stream(sent))), 1000)
        for number in range(1000, 1050):
            request.request_id = number
            client.lookup(request)
        lines = self.finish(server)
        self.assertEqual([int(line['request_id']) for line in lines], list(range(0, 1050, 10)))

    def test_limits_lines_and_counts_the_others(self):
        server = self.serve('--access-log', 'all', '--access-log-per-s-max', '5', '--loops', '1')
        client = self.connect(server)
        list(client.stream([request_of('spec')] * 200))
        list(client.stream([bad_request()] * 300))
        failing = 300

        def is_counted():
            nonlocal failing
            failing += 1
            error_of(client.lookup, bad_request())
            return server.find('requests_not_logged')
        wait_until(is_counted, SECONDS, 'a count of lines')
        codes = [line['code'] for line in self.finish(server)]
        counted = lines_of(server, 'requests_not_logged')
        for code, kind, count in (('OK', 'good', 200), ('NOT_FOUND', 'failed', failing)):
            self.assertEqual(codes.count(code) + sum(int(line[kind]) for line in counted), count)
        self.assertLess(codes.count('OK'), 200)

    @staticmethod
    def wait_for_all_failures(server, count):
        """Waits until every failure has a line, or is counted among those without one."""
        def is_told():
            counts = lines_of(server, 'requests_not_logged')
            return len(lines_of(server)) + sum(int(line['failed']) for line in counts) == count
        wait_until(is_told, SECONDS, 'a count of lines')

    def test_counts_what_it_left_out_while_nobody_calls(self):
        for stays in (True, False):
            with self.subTest(stays=stays):
                server = self.serve('--access-log-per-s-max', '5', '--loops', '1')
                client = self.connect(server)
                list(client.stream([bad_request()] * 300))
                if not stays:
                    client.close()
                self.wait_for_all_failures(server, 300)

    def test_waits_for_nobody_who_does_not_read_it(self):
        self.serve().stop()
        path = 'unix:' + self.repository.join('socket')
        with subprocess.Popen(
                [embagd_process.EMBAGD, '--model-repository', self.repository.path, '--http-listen',
                 'none', '--listen', path, '--threads', '1', '--access-log', 'all', *MANY],
                stderr=subprocess.PIPE, env=clean_environment()) as process:
            fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
            with Client(path) as client:
                wait_until(lambda c=client: error_of(c.lookup, bad_request())[0].name ==
                           'NOT_FOUND', SECONDS, 'an answer')
                answers = list(client.stream([request_of('spec')] * 2000))
                self.assertEqual({answer.error_code for answer in answers}, {0})
                os.read(process.stderr.fileno(), 65536)
                client.list_models()
            process.terminate()
            self.assertIn(b' event=log_lost lines=', process.stderr.read())
            self.assertEqual(process.wait(SECONDS), 0)


class Traces(AccessLogTest):
    def test_tells_the_trace_of_each_request(self):
        server = self.serve('--access-log', 'all', *MANY)
        self.call(server, request_of('spec'), ('traceparent', PARENT + '01'))
        self.call(server, request_of('spec'), ('traceparent', PARENT + '00'), ('tracestate', 'a=b'))
        self.call(server, request_of('spec'))
        stream = self.connect(server).channel.stream_stream(
            SERVICE + 'LookupStream', request_serializer=as_bytes)
        self.assertEqual(len(list(stream(iter([request_of('spec')] * 2), timeout=SECONDS,
                                         metadata=[('traceparent', PARENT + '01')]))), 2)
        lines = self.finish(server)
        self.assertEqual([line.get('trace_id') for line in lines],
                         [TRACE, TRACE, None, TRACE, TRACE])
        for name in 'span_id', 'parent_id':
            self.assertEqual([line.get(name) for line in lines], [SPAN, SPAN, None, SPAN, SPAN])
        self.assertEqual([line.get('sampled') for line in lines],
                         ['true', 'false', None, 'true', 'true'])

    def test_tells_the_trace_of_a_message_before_that_of_its_call(self):
        server = self.serve('--access-log', 'all', *MANY)
        other = '00-' + 'ab' * 16 + '-' + 'cd' * 8 + '-00'
        def traced(text):
            return request_of('spec', traceparent=text)
        self.call(server, traced(other))
        self.call(server, traced(other), ('traceparent', PARENT + '01'))
        # An invalid traceparent is ignored. If a message has no valid one, the call's applies.
        self.call(server, traced(PARENT + '0g'), ('traceparent', PARENT + '01'))
        self.call(server, traced(''), ('traceparent', PARENT + '01'))
        self.call(server, traced(PARENT + '01'), ('traceparent', 'x'))
        stream = self.connect(server).channel.stream_stream(
            SERVICE + 'LookupStream', request_serializer=as_bytes)
        requests = [traced(other), traced('x'), request_of('none', traceparent=other), traced('')]
        for number, request in enumerate(requests):
            request.request_id = number
        self.assertEqual(len(list(stream(iter(requests), timeout=SECONDS,
                                         metadata=[('traceparent', PARENT + '01')]))), 4)
        lines = self.finish(server)
        expected = [other, other, PARENT + '01', PARENT + '01', PARENT + '01',
                    other, PARENT + '01', other, PARENT + '01']
        self.assertEqual([trace_of(line) for line in lines[:5]] + [
            trace_of(line) for line in sorted(lines[5:], key=lambda line: line['request_id'])],
                         expected)

    def test_samples_by_the_traces_of_messages(self):
        server = self.serve('--access-log', 'sampled', *MANY)
        for own, call in (('01', '00'), ('00', '01'), ('01', '01'), ('00', '00'), ('01', '00')):
            self.call(server, request_of('spec', traceparent=PARENT + own),
                      ('traceparent', PARENT + call))
        self.assertEqual([line['sampled'] for line in self.finish(server)],
                         ['true', 'true', 'true'])

    def test_the_tool_sends_a_trace(self):
        server = self.serve('--access-log', 'all', *MANY)
        subprocess.run([served.EMBAG, 'lookup', '--server', server.address, '--table', 'emb_table',
                        '--indices', '0', '--num-bags', '1', '--traceparent', PARENT + '01'],
                       check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)
        self.assertEqual(list(map(trace_of, self.finish(server))), [PARENT + '01'])

    def test_logs_traces_that_are_sampled_where_it_samples(self):
        for mode, count in (('sampled', 6), ('errors', 0), ('off', 0)):
            server = self.serve('--access-log', mode, *MANY)
            for flag in ('00', '01', '00', '01', '01', '01', '00', '01'):
                self.call(server, request_of('spec'), ('traceparent', PARENT + flag))
            with self.subTest(mode=mode):
                self.assertEqual(len(self.finish(server)), count)

    def test_ignores_what_is_malformed(self):
        server = self.serve('--access-log', 'all', *MANY)
        malformed = ['', '00', PARENT, PARENT + '0', PARENT + '01-', PARENT + '0g', 'ff' +
                     PARENT[2:] + '01', '00-' + TRACE.upper() + '-' + SPAN + '-01',
                     '00-%s-%s-01' % ('0' * 32, SPAN), '00-%s-%s-01' % (TRACE, '0' * 16),
                     '00-' + TRACE + '-x" event=forged-01', 'x' * 3000]
        for text in malformed:
            self.call(server, request_of('spec'), ('traceparent', text))
        self.call(server, request_of('spec'), *[('traceparent', PARENT + '01')] * 2)
        lines = self.finish(server)
        self.assertEqual(len(lines), len(malformed) + 1)
        for line in lines:
            self.assertNotIn('trace_id', line)
            self.assertEqual(line['code'], 'OK')


class Lines(AccessLogTest):
    def test_tells_what_was_asked_and_how_long_it_took(self):
        server = self.serve('--access-log', 'all', *MANY)
        request = request_of('spec')
        request.request_id, request.priority = 2**63 + 5, 1
        request.queries.append(pb.BagQuery(table='emb_table', indices=[1, 2, -1], num_bags=1,
                                           missing=pb.MISSING_SKIP))
        before = time.monotonic()
        answer = self.connect(server).lookup(request)
        took_us = (time.monotonic() - before) * 1e6
        line, = self.finish(server)
        self.assertEqual(line['level'], 'info')
        self.assertEqual(line['code'], 'OK')
        self.assertEqual(line['method'], 'embag.v1.EmbeddingBag/Lookup')
        self.assertRegex(line['peer'], r'^127\.0\.0\.1:\d+$')
        self.assertEqual((line['model'], line['version']), ('spec', '1'))
        self.assertEqual(line['request_id'], str(2**63 + 5))
        self.assertEqual((line['priority'], line['stream']), ('batch', 'false'))
        self.assertEqual((line['queries'], line['bags'], line['rows']), ('2', '2', '5'))
        self.assertEqual(line['missing'], '1')
        self.assertEqual(line['in_bytes'], str(len(as_bytes(request))))
        self.assertLessEqual(int(line['out_bytes']) - len(as_bytes(answer)), 16)
        total, queue, compute = (int(line[key]) for key in ('total_us', 'queue_us', 'compute_us'))
        self.assertLessEqual(total, took_us)
        self.assertLessEqual(abs(total - queue - compute), 1)
        self.assertNotIn('error', line)
        self.assertNotIn('principal', line)

    def test_names_what_failed_and_why(self):
        server = self.serve(*MANY, '--in-flight-max', '2', '--inline-below-us', '0')
        client = self.connect(server)
        told = [error_of(client.lookup, bad_request()),
                error_of(client.lookup, b'\xff\xff'),
                error_of(client.lookup, bytes(17 << 20)),
                error_of(client.unary('None', pb.LookupResponse), b''),
                error_of(client.messages_as_unary, [request_of('spec')] * 2),
                error_of(client.messages_as_unary, []),
                error_of(client.unary('GetModel', pb.Model), pb.GetModelRequest(model='none'))]
        lines = self.finish(server)
        self.assertEqual([(line['code'], line['error']) for line in lines],
                         [(code.name, text) for code, text in told])
        self.assertEqual([line['method'].split('/')[1] for line in lines],
                         ['Lookup'] * 3 + ['None'] + ['Lookup'] * 2 + ['GetModel'])

    def test_tells_what_was_refused_for_too_much(self):
        table = Table.of_values('emb_table', 'f32', np.zeros((500, 4096)))
        server = self.serve(*MANY, '--in-flight-max', '2', '--inline-below-us', '0',
                            tables=[table])
        asked = message(as_bytes(pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', indices=list(range(100)) * 20, num_bags=1)])))
        codes = []

        def flood():
            with Connection(server.port, window=1 << 24) as peer:
                sent = []
                for number in range(1, 120, 2):
                    sent.append(frame(HEADERS, 4, number, header_encode(call_fields())))
                    sent.append(frame(DATA, 1, number, asked))
                peer.send(b''.join(sent))
                codes.extend(peer.finish(n)[0]['grpc-status'] for n in range(1, 120, 2))
            return '8' in codes
        wait_until(flood, SECONDS, 'a refusal')
        refused = [line for line in self.finish(server) if 'in_flight_max' in line['error']]
        self.assertEqual(len(refused), codes.count('8'))

    def test_tells_what_its_client_gave_up_or_its_deadline_ended(self):
        server = self.serve(*MANY)
        client = self.connect(server)
        call = client.channel.stream_unary(SERVICE + 'Lookup', request_serializer=as_bytes)
        for deadline in None, 0.3:
            requests = Requests()
            requests.put(request_of('spec'))
            waiting = call.future(iter(requests), timeout=deadline)
            client.list_models()
            if deadline is None:
                waiting.cancel()
            else:
                self.assertEqual(waiting.code().name, 'DEADLINE_EXCEEDED')
            requests.end()
        lines = wait_until(lambda: len(lines_of(server)) == 2 and lines_of(server), SECONDS,
                           'two lines')
        self.assertEqual(lines[0]['code'], 'CANCELLED')
        # Either clock may expire first.
        self.assertIn(lines[1]['code'], ('CANCELLED', 'DEADLINE_EXCEEDED'))
        expired = request_of('spec')
        expired.timeout_us = 1
        self.assertEqual(error_of(client.lookup, expired)[0].name, 'DEADLINE_EXCEEDED')
        self.assertEqual([line['code'] for line in self.finish(server)][2:], ['DEADLINE_EXCEEDED'])

    def test_tells_each_request_of_a_stream_and_how_it_ended(self):
        server = self.serve('--access-log', 'all', *MANY)
        stream = self.connect(server).stream([request_of('spec'), bad_request(), b'\xff'])
        code, text = error_of(list, stream)
        lines = self.finish(server)
        self.assertEqual([line['code'] for line in lines], ['OK', 'NOT_FOUND', code.name])
        self.assertEqual({line['stream'] for line in lines}, {'true'})
        self.assertEqual(lines[2]['error'], text)

    def test_lets_nobody_forge_a_line(self):
        server = self.serve('--access-log', 'all', *MANY)
        client = self.connect(server)
        for name in HOSTILE:
            error_of(client.lookup, request_of(name))
        with Attacker(server.port) as peer:
            path = '/a"\\event=request\u2028/x'
            peer.send(*peer.call(message(b''), path))
            wait_until(lambda: 'services' in server.log, SECONDS, 'the refusal')
        lines = self.finish(server)
        self.assertEqual(len(lines), len(HOSTILE) + 1)
        for name, line in zip(HOSTILE, lines):
            self.assertEqual((line['code'], line['peer'][:10]), ('NOT_FOUND', '127.0.0.1:'))
            self.assertEqual(line['model'], name)
        self.assertEqual((lines[-1]['code'], lines[-1]['method']), ('UNIMPLEMENTED', path[1:]))


class Json(AccessLogTest):
    """log_format: json writes the same lines with the same keys."""

    def log(self, log_format):
        """Returns what a server logs in that format about a good request and about hostile ones."""
        server = self.serve('--access-log', 'all', '--log-format', log_format, '--prefetch', 'off',
                            '--threads', '1', '--inline-below-us', '10', *MANY)
        self.call(server, request_of('spec'), ('traceparent', PARENT + '01'))
        self.call(server, pb.LookupRequest(model='spec', request_id=2**64 - 1))
        for name in HOSTILE:
            error_of(self.connect(server).lookup, request_of(name))
        with Attacker(server.port) as peer:
            # Only a path can contain bytes that are not UTF-8: a name with such bytes is refused.
            peer.send(*peer.call(message(b''), b'/\xff"}\xc2\x85/x'))
            wait_until(lambda: 'services' in server.log, SECONDS, 'the refusal')
        for client in self.clients:
            client.close()
        server.stop()
        # A slow machine reports the progress of loads.
        progress = 'event=loading ', '"event":"loading"'
        return [line for line in server.lines if not any(text in line for text in progress)]

    def test_has_the_lines_of_logfmt(self):
        def words_of(value):
            """Returns a value as logfmt prints it."""
            return json.dumps(value) if isinstance(value, (bool, int)) else value
        pairs = zip(map(fields_of, self.log('logfmt')), map(json.loads, self.log('json')),
                    strict=True)
        events = set()
        for plain, line in pairs:
            self.assertEqual(list(plain), list(line))
            events.add(line['event'])
            for key in set(line) - VARYING:
                self.assertEqual(plain[key], words_of(line[key]), (line['event'], key))
        self.assertLessEqual({'config', 'listening', 'model_loaded', 'ready', 'request', 'draining',
                              'stopped'}, events)

    def test_has_numbers_booleans_and_ids(self):
        lines = [line for line in map(json.loads, self.log('json')) if line['event'] == 'request']
        first, second, *hostile, last = lines
        self.assertEqual((first['trace_id'], first['span_id'], first['parent_id']),
                         (TRACE, SPAN, SPAN))
        self.assertIs(first['sampled'], True)
        self.assertIs(first['stream'], False)
        self.assertIsInstance(first['total_us'], int)
        self.assertEqual(second['request_id'], 2**64 - 1)
        self.assertNotIn('trace_id', second)
        self.assertEqual([line['model'] for line in hostile], HOSTILE)
        self.assertEqual(last['code'], 'UNIMPLEMENTED')

    def test_has_the_failure_of_a_start(self):
        for flags, event, reason in (
                (('--isa', 'nonsense'), 'start_failed', 'nonsense'),
                (('--loops', 'x'), 'bad_configuration', 'not a whole number')):
            server = Embagd(self.repository.path, *flags, '--log-format', 'json')
            lines = list(map(json.loads, server.start_fails().splitlines()))
            self.assertEqual((lines[-1]['level'], lines[-1]['event']), ('error', event))
            self.assertIn(reason, lines[-1]['reason'])
        wrong = Embagd(self.repository.path, '--log-format', 'xml').start_fails()
        self.assertIn('logfmt|json', fields_of(wrong.strip())['reason'])


class SlowRequests(AccessLogTest):
    def test_are_on_the_page_with_their_traces(self):
        server = self.serve(*MANY, http='127.0.0.1:0')
        self.call(server, request_of('spec'), ('traceparent', PARENT + '00'))
        for _ in range(100):
            self.call(server, request_of('spec'))
        with urllib.request.urlopen('http://127.0.0.1:%d/status.json' % server.http_port,
                                    timeout=SECONDS) as answer:
            slow = json.load(answer)['slow']
        self.assertEqual(len(slow), SLOW_MAX)
        totals = [request['ns']['total'] for request in slow]
        self.assertEqual(totals, sorted(totals, reverse=True))
        for request in slow:
            self.assertEqual(request['method'], 'embag.v1.EmbeddingBag/Lookup')
            self.assertEqual((request['model'], request['code']), ('spec', 'OK'))
            self.assertIn((request['trace'], request['span']), (('', ''), (TRACE, SPAN)))
            self.assertEqual(request['ns']['total'],
                             request['ns']['queue'] + request['ns']['compute'])


class Callers(AuthTest):
    def test_tells_who_called_and_no_token(self):
        server = self.serve_rules('--access-log', 'all', '--admin-on-data-port', 'true', *MANY)
        self.caller(server, RANKING).lookup(request_of('spec'))
        error_of(self.caller(server, RANKING).lookup, request_of('other'))
        self.caller(server, ALL).list_models()
        error_of(self.caller(server, ALL, kind=Admin).list_versions)
        self.caller(server, CHIEF, kind=Admin).list_versions()
        error_of(self.caller(server, 'wrong-token-0123456789').lookup, request_of('spec'))
        error_of(self.caller(server).lookup, request_of('spec'))
        wait_until(lambda: len(lines_of(server)) == 7, SECONDS, 'the lines')
        told = [(line['code'], line.get('principal')) for line in lines_of(server)]
        self.assertEqual(told, [
            ('OK', 'ranking'), ('PERMISSION_DENIED', 'ranking'), ('OK', 'all'),
            ('PERMISSION_DENIED', 'all'), ('OK', 'chief'), ('UNAUTHENTICATED', None),
            ('UNAUTHENTICATED', None)])
        for token in (RANKING, ALL, CHIEF, 'wrong-token'):
            self.assertNotIn(token, server.log)

    def test_tells_the_name_by_the_rules_of_now(self):
        server = self.serve_rules('--access-log', 'all', *MANY)
        client = self.caller(server, RANKING)
        client.lookup(request_of('spec'))
        self.principals[0]['name'] = 'renamed'
        self.write_rules()
        self.reload(server)

        def newest():
            client.lookup(request_of('spec'))
            return lines_of(server)[-1:][0]['principal'] == 'renamed'
        wait_until(newest, SECONDS, 'the new name')
        server.stop()
        self.assertEqual(lines_of(server)[0]['principal'], 'ranking')


class NamedCallers(AuthTest):
    """Callers identified by certificates."""

    def test_tells_whose_certificate_it_was(self):
        self.authority.issue('server', names=HERE)
        self.authority.issue('client', 'plain name')
        self.principals += [{'name': 'common', 'client_name': 'plain name', 'models': ['spec']}]
        server = self.serve_rules(
            '--access-log', 'all', '--tls-cert', self.authority.path('server.pem'),
            '--tls-key', self.authority.path('server.key'), '--tls-client-ca',
            self.authority.path('ca.pem'), '--tls-client-verify', 'optional', *MANY)
        for certificate in 'client', None:
            client = SecureClient('localhost:%d' % server.port, self.authority, certificate)
            self.addCleanup(client.close)
            if certificate:
                client.lookup(request_of('spec'))
            else:
                error_of(client.lookup, request_of('spec'))
        server.stop()
        self.assertEqual([line.get('principal') for line in lines_of(server)], ['common', None])
