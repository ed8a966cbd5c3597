"""Serves the status page with a made-up status that changes over time. It imitates servers that are
hard to produce, such as one with a hundred models, or one that stops answering."""

import http.server
import json
import os
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, '..', '..', '..', 'server', 'admin', 'status_page.html')
POLICY = ("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "connect-src 'self'; img-src data:")
STARTED_MS = 1_700_000_000_000

REFUSALS = ('queue_full', 'late', 'batch', 'in_flight', 'memory', 'expired', 'expired_unsent',
            'connections', 'handshakes')
COUNTS = ('connections_accepted', 'tls_handshakes_timed_out', 'calls_started', 'received_bytes',
          'sent_bytes', 'queries', 'bags', 'rows_touched', 'row_bytes_touched', 'value_bytes',
          'lookups_inline', 'receive_memory_shortages', 'answer_memory_shortages')
STAGES = ('queue', 'compute', 'send', 'total')
# Texts that would do harm if the page took them for HTML or code.
HOSTILE = ['<img src=x onerror="window.harmed=1">', '</script><script>window.harmed=2</script>',
           '"\'`${window.harmed=3}', '\u202eright to left', 'a' * 200,
           '\u05d0\u05d1 \U0001f600 &amp;', '__proto__', 'constructor']


def histogram(ranges):
    """Returns a histogram from {end in ns: count}."""
    return {'sum_ns': sum(end * n for end, n in ranges.items()),
            'ranges': [[end, n] for end, n in ranges.items()]}


def empty_status(phase='loading'):
    """Returns the status of a process that has just started."""
    return {
        'phase': phase, 'taken_unix_ms': STARTED_MS, 'started_unix_ms': STARTED_MS,
        'requests': [], 'refusals': dict.fromkeys(REFUSALS, 0), 'counts': dict.fromkeys(COUNTS, 0),
        'stages': {name: histogram({}) for name in STAGES}, 'lag': histogram({}),
        'loops': [{'connections': 0, 'receive_bytes': 0, 'answer_bytes': 0}],
        'executor': {'threads': 4, 'idle_threads': 4, 'tiles': 0, 'busy_ns': 0, 'bytes_per_us': 0,
                     'queued': [{'priority': name, 'works': 0, 'bytes': 0}
                                for name in ('interactive', 'batch')]},
        'tables': [], 'models': [], 'loads': {'done': 0, 'failed': 0, 'freed': 0},
        'load': {'done_bytes': 0, 'total_bytes': 0}, 'repository': 'readable', 'slow': []}


def version(number, state='serving', rows=0, failure=None):
    """Returns a model's version, resident if it has rows."""
    size = rows * 256
    return {'number': str(number), 'state': state, 'fault': failure,
            'loaded_unix_ms': STARTED_MS - 3_720_000 if rows else 0, 'load_ms': 1840 if rows else 0,
            'tables': 10 if rows else 0, 'rows': rows, 'bytes': size,
            'pages': {'small': size // 50, 'huge_2m': size - size // 50, 'huge_1g': 0}}


def model(name, versions, failure=None):
    """Returns a model of that name."""
    served = [v['number'] for v in versions if v['state'] == 'serving']
    return {'name': name, 'served': served[0] if served else None, 'fault': failure,
            'versions': versions}


def many_models(count):
    """Returns models with a version of ten tables each; some have more versions, some have
    failures."""
    models = []
    for i in range(count):
        name = HOSTILE[i] if i < len(HOSTILE) else 'ranking-%03d' % i
        versions = [version(7, rows=100_000 * (i + 1))]
        if i % 10 == 3:
            versions.insert(0, version(2 ** 64 - 1, 'failed', failure='user.npy: its header ends '
                                       'early: 80 bytes of 128 <b>%s</b>' % name))
        if i % 10 == 4:
            versions.append(version(6, 'retired', rows=100_000))
        models.append(model(name, versions))
    return models


def many_tables(models, seconds):
    """Returns ten tables for each model; later ones are busier."""
    tables = []
    for i, one in enumerate(models):
        for j in range(10):
            name = HOSTILE[j] if i == len(models) - 1 and j < len(HOSTILE) else 'table_%d' % j
            rows = int(seconds * (10 * i + j) * 120)
            hot = [[str(-2 ** 63 + k), 0.2 / (k + 1)] for k in range(16)] if j % 2 else []
            tables.append({'model': one['name'], 'table': name, 'bags': rows // 20,
                           'indices': rows, 'missing': rows // (50 + j), 'hot': hot})
    return tables


def slow_requests(until_ms):
    """Returns as many slow requests as the status can hold."""
    texts = ['/embag.v1.EmbeddingBag/Lookup', *HOSTILE]
    return [{'unix_ms': until_ms - 7000 * i, 'method': texts[i % len(texts)][:127],
             'model': 'ranking-%03d' % i,
             'peer': 'unix:' if i % 5 == 4 else '[2001:db8::%x]:50123' % i,
             'trace': '%032x' % (0xabcdef << 40 | i) if i % 3 else '', 'code': 'OK',
             'indices': 1000 * i, 'value_bytes': 4096 * i,
             'ns': {'queue': 9_000_000 - i * 200_000, 'compute': 900_000, 'send': 40_000,
                    'total': 9_940_000 - i * 200_000}} for i in range(32)]


def route_status(parts):
    """Returns what a router knows of a model in this many parts, the first of which is lost."""
    shown = min(parts, 65)
    slots = [{'slot': name, 'version': str(number), 'complete': name != 'served', 'parts': parts,
              'ready_parts': parts - (name == 'served'),
              'replicas': [0 if name == 'served' else 2, *[1] * (shown > 1), *[2] * (shown - 2)]}
             for name, number in (('served', 8), ('next', 9), ('previous', 7))]
    peers = [{'address': '[2001:db8::%x]:8600' % i, 'part': i if i < parts else None,
              'state': ('lost', 'suspect', 'ejected', 'connected')[min(i, 3)],
              'latency_ns': 300_000 + 1000 * i, 'sent': 100 * i, 'failed': i}
             for i in range(parts + 1)]
    return {'not_ready': None, 'conflict': True, 'connected': parts, 'replicas_wanted': 2,
            'flips': 3, 'back_outs': 1, 'unreached': 5, 'peers': peers,
            'models': [{'name': name, 'behind': True, 'slots': slots} for name in HOSTILE[:3]]}


def busy_status(seconds, models=1):
    """Returns the status of a server that has been serving for this many seconds."""
    status = empty_status('serving')
    n = int(seconds * 1234)
    status['taken_unix_ms'] = STARTED_MS + int(seconds * 1000)
    for service, method, code, count in [
            ('embag.v1.EmbeddingBag', 'Lookup', 'OK', n), ('', '', 'UNIMPLEMENTED', n // 900),
            ('embag.v1.EmbeddingBag', 'Lookup', 'RESOURCE_EXHAUSTED', n // 20),
            ('embag.v1.EmbeddingBag', 'Lookup', 'OUT_OF_RANGE', n // 100),
            ('inference.GRPCInferenceService', 'ModelInfer', 'CANCELLED', n // 200)]:
        status['requests'].append(
            {'service': service, 'method': method, 'code': code, 'count': count})
    status['refusals'].update(queue_full=n // 30, late=n // 60)
    status['counts'].update(
        connections_accepted=int(seconds * 3), received_bytes=n * 2600, sent_bytes=n * 13400,
        rows_touched=n * 520, row_bytes_touched=n * 520 * 256)
    for name, base in zip(STAGES, (81920, 163840, 20480, 327680)):
        status['stages'][name] = histogram(
            {base: n * 60 // 100, base * 2: n * 38 // 100, base * 16: n * 2 // 100, 0: n // 40000})
    status['lag'] = histogram({7168: n * 3, 114688: n // 50})
    status['loops'] = [{'connections': 12, 'receive_bytes': 3 << 20, 'answer_bytes': 9 << 20}] * 2
    status['executor'].update(idle_threads=2, tiles=n * 3, busy_ns=int(seconds * 1.7e9))
    status['executor']['queued'][0].update(works=17, bytes=17 * 133120)
    status['models'] = (many_models(models) if models > 1
                        else [model('ranking', [version(3, rows=14_000_000)])])
    status['tables'] = many_tables(status['models'], seconds)
    status['loads'] = {'done': models, 'failed': 2, 'freed': 1}
    status['load'] = {'done_bytes': 3 << 30, 'total_bytes': 10 << 30}
    status['repository'] = 'unreadable'
    status['slow'] = slow_requests(STARTED_MS + 100_000)
    return status


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the page, its status and its version, and nothing else."""
    protocol_version = 'HTTP/1.1'

    def do_GET(self):  # pylint: disable=invalid-name
        """Serves the requested path, unless the server is to be silent."""
        owner = self.server.owner
        if not owner.answers and self.path != '/':
            self.close_connection = True
            return
        if self.path == '/':
            with open(PAGE, 'rb') as file:
                self._send('text/html; charset=utf-8', file.read())
        elif self.path == '/status.json':
            owner.looks += 1
            self._send('application/json', json.dumps(owner.make()).encode())
        elif self.path == '/version':
            self._send('application/json', b'{"version": "1.0.0", "build": "x", "isa": "avx2"}')
        else:
            self.send_error(404)

    def _send(self, kind, body):
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.send_header('Content-Security-Policy', POLICY)
        self.send_header('Cache-Control', 'no-store')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Logs nothing."""


class StatusServer:
    """A server whose status is make() at the time of the request. With answers = False it no longer
    responds."""

    def __init__(self, make):
        self.make = make
        self.answers = True
        self.looks = 0
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.server.owner = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        """Returns the page's address."""
        return 'http://127.0.0.1:%d/' % self.server.server_address[1]

    def close(self):
        """Stops the server."""
        self.server.shutdown()
        self.server.server_close()


class Clock:
    """Counts seconds from its creation, plus an offset."""

    def __init__(self, more=0):
        self.start = time.monotonic() - more

    def seconds(self):
        """Returns the seconds so far."""
        return time.monotonic() - self.start
