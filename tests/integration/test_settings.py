"""Settings of a running server: they are read again on command, on SIGHUP and when their file
changes. test_live_settings tests the effect of each setting."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import unittest

import grpc

import served
from embag.v1 import embedding_bag_pb2 as pb
from embag.v1 import model_admin_pb2 as admin_pb
from embagd_process import wait_until
from http_peer import Metrics
from rpc import Admin, Client, Requests, error_of
from served import OwnServerTest, scaled

SECONDS = 60
SIGNALS = 100
ORIGINS = admin_pb.Setting.Origin
QUERY = pb.BagQuery(table='emb_table', indices=[0, 4], num_bags=1)
EMPTY = {'log_level': 'info'}


def asked(queries=1):
    """Returns a request with this many queries."""
    return pb.LookupRequest(model='spec', queries=[QUERY] * queries)


def pending_count(server):
    """Returns the metric that counts settings which need a restart."""
    return Metrics(server).get('embag_settings_pending_restart')


class SettingsTest(OwnServerTest):
    """A server with a file of settings and a socket for commands."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(dir=self.repository.path, prefix='.settings-')
        self.file = os.path.join(self.folder, 'embagd.yaml')
        self.write({})

    def write(self, settings):
        """Replaces the file atomically."""
        text = settings if isinstance(settings, str) else ''.join(
            '%s: %s\n' % pair for pair in {**EMPTY, **settings}.items())
        with open(self.file + '.new', 'w', encoding='utf-8') as file:
            file.write(text)
        os.replace(self.file + '.new', self.file)

    def serve(self, *flags, **keywords):
        socket = 'unix:' + os.path.join(self.folder, 'admin.sock')
        self.server = super().serve('--config', self.file, '--admin-listen', socket, *flags,
                                    **keywords)
        self.socket = socket
        self.admin = Admin(socket)
        self.addCleanup(self.admin.close)
        return self.server

    def serve_with(self, settings, *flags, **keywords):
        """Starts a server with these settings in its file."""
        self.write(settings)
        return self.serve(*flags, **keywords)

    def ask_admin(self, method, request, answer):
        """Calls a method of ModelAdmin."""
        call = self.admin.channel.unary_unary(
            '/embag.v1.ModelAdmin/' + method, request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString)
        return call(request, timeout=SECONDS)

    def reload(self, settings=None):
        """Writes the file, unless `settings` is None, and reloads. Returns the two counts."""
        if settings is not None:
            self.write(settings)
        done = self.ask_admin('ReloadSettings', admin_pb.ReloadSettingsRequest(),
                              admin_pb.ReloadSettingsResponse)
        return done.changed, done.pending

    def hang_up(self, settings, event='settings_reloaded'):
        """Writes the file, sends SIGHUP and waits for the event."""
        self.write(settings)
        count = self.server.log.count('event=%s ' % event)
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.log.count('event=%s ' % event) > count, SECONDS, event)

    def list(self):
        """Returns all settings by name."""
        listed = self.ask_admin('ListSettings', admin_pb.ListSettingsRequest(),
                                admin_pb.ListSettingsResponse)
        return {setting.name: setting for setting in listed.settings}

    def lines_of(self, event):
        """Returns the log lines of an event."""
        return [line for line in list(self.server.lines) if 'event=%s ' % event in line]

    def wait_lines(self, event, count):
        """Waits until there are this many log lines of an event; returns them."""
        wait_until(lambda: len(self.lines_of(event)) >= count, SECONDS,
                   '%d lines event=%s' % (count, event))
        lines = self.lines_of(event)
        self.assertEqual(len(lines), count)
        return lines

    def tool(self, *words):
        """Runs `embag settings`; returns its exit status and all of its output."""
        ran = subprocess.run([served.EMBAG, 'settings', *words, '--server', self.socket],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=SECONDS, check=False)
        return ran.returncode, ran.stdout


class Reloads(SettingsTest):
    """What a reload does, and what it reports."""

    def test_changes_what_may_change_and_tells_what_waits(self):
        self.serve_with({'queries_max': 1}, http='127.0.0.1:0')
        client = self.connect(self.server)
        self.assertEqual(error_of(client.lookup, asked(2))[0].name, 'RESOURCE_EXHAUSTED')
        new = {'queries_max': 2, 'streams_max': 7, 'huge_pages': '"off"'}
        self.assertEqual(self.reload(new), (1, 2))
        self.assertEqual(len(client.lookup(asked(2)).results), 2)
        limits = {limit.name: limit.value for limit in client.get_server().limits}
        self.assertEqual((limits['queries_max'], limits['streams_max']), (2, 256))
        changed, = self.wait_lines('setting_changed', 1)
        self.assertRegex(changed, 'name=queries_max old=1 new=2$')
        self.wait_lines('setting_needs_restart', 2)
        wait_until(lambda: pending_count(self.server) == 2, SECONDS, 'the metric')
        self.assertEqual(self.reload(), (0, 2))
        self.wait_lines('settings_reloaded', 2)
        self.assertEqual(len(self.lines_of('setting_needs_restart')), 2)
        self.assertEqual(self.reload({'queries_max': 2}), (0, 0))
        wait_until(lambda: pending_count(self.server) == 0, SECONDS, 'the metric')

    def test_changes_nothing_if_anything_is_wrong(self):
        self.serve_with({'queries_max': 1})
        client = self.connect(self.server)
        wrong = (('queries_max: 2\nbags_max: many\n', 'bags_max: many: not a whole number'),
                 ('queries_max: 2\nqueries_min: 1\n', 'queries_min'),
                 ('queries_max: 2\nloops: 4000\n', 'loops: 4000'),
                 ('queries_max: 2\ntls_cert: /c\n', 'needs --tls-key'),
                 ('queries_max: [\n', 'embagd.yaml'))
        for count, (text, why) in enumerate(wrong):
            self.write(text)
            code, said = error_of(self.reload)
            self.assertEqual(code, grpc.StatusCode.FAILED_PRECONDITION)
            self.assertIn(why, said)
            self.assertIn(why, self.wait_lines('reload_failed', count + 1)[-1])
            self.assertEqual(error_of(client.lookup, asked(2))[0].name, 'RESOURCE_EXHAUSTED')
        os.remove(self.file)
        self.assertRegex(error_of(self.reload)[1], 'cannot be read')
        self.assertEqual(self.lines_of('setting_changed'), [])
        self.assertEqual(self.reload({'queries_max': 2}), (1, 0))
        self.assertEqual(len(client.lookup(asked(2)).results), 2)

    def test_flags_and_environment_override_the_file(self):
        self.serve_with({}, '--queries-max', '1', environment={'EMBAG_BAGS_MAX': '77'})
        self.assertEqual(self.reload({'queries_max': 2, 'bags_max': 78, 'indices_max': 9}), (1, 0))
        listed = self.list()
        self.assertEqual([listed[n].value for n in ('queries_max', 'bags_max', 'indices_max')],
                         ['1', '77', '9'])
        self.assertEqual([listed[n].origin for n in ('queries_max', 'bags_max', 'indices_max')],
                         [ORIGINS.ORIGIN_FLAG, ORIGINS.ORIGIN_ENVIRONMENT, ORIGINS.ORIGIN_FILE])
        self.write({'queries_max': 0})
        self.assertRegex(error_of(self.reload)[1], 'queries_max: 0: not in 1')

    def test_a_hang_up_does_the_same(self):
        self.serve_with({'queries_max': 1})
        client = self.connect(self.server)
        self.hang_up({'queries_max': 2})
        wait_until(lambda: self.list()['queries_max'].value == '2', SECONDS, 'the setting')
        wait_until(lambda: not self.is_refused(client, asked(2)), SECONDS, 'the limit')
        self.hang_up({'queries_max': 0}, 'reload_failed')
        self.assertEqual(self.list()['queries_max'].value, '2')

    def is_refused(self, client, request):
        """Returns whether a lookup is refused."""
        try:
            client.lookup(request)
        except grpc.RpcError:
            return True
        return False

    def test_a_request_on_an_open_stream_gets_the_new_limits(self):
        self.serve_with({'queries_max': 1})
        answers = self.connect(self.server).stream(requests := Requests())
        requests.put(asked(2))
        self.assertEqual(next(answers).error_code, 8)
        self.reload({'queries_max': 2})
        requests.put(asked(2))
        self.assertEqual(next(answers).error_code, 0)
        requests.end()

    def test_only_admins_may(self):
        self.serve_with({})
        for method, request in (('ReloadSettings', admin_pb.ReloadSettingsRequest()),
                                ('ListSettings', admin_pb.ListSettingsRequest())):
            call = self.connect(self.server).channel.unary_unary(
                '/embag.v1.ModelAdmin/' + method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=lambda data: data)
            self.assertEqual(error_of(call, request)[0], grpc.StatusCode.PERMISSION_DENIED)


class Watches(SettingsTest):
    """A server that watches its file."""

    def watch(self, **keywords):
        """Starts a server that watches its file."""
        return self.serve_with({'queries_max': 1}, '--watch-settings', 'true', **keywords)

    def wait_value(self, value):
        """Waits until queries_max has a value."""
        wait_until(lambda: self.list()['queries_max'].value == value, SECONDS, value)

    def test_reloads_when_the_file_changes(self):
        self.watch(http='127.0.0.1:0')
        self.write({'queries_max': 2})
        self.wait_value('2')
        self.write({'queries_max': 0})
        wait_until(lambda: self.lines_of('reload_failed'), SECONDS, 'event=reload_failed')
        self.write({'queries_max': 3})
        self.wait_value('3')
        self.wait_lines('settings_reloaded', 2)
        wait_until(lambda: Metrics(self.server).get('embag_reloads_total', result='done') == 2,
                   SECONDS, 'the count')

    def test_reloads_when_a_link_leads_elsewhere(self):
        """As Kubernetes replaces the files of a ConfigMap."""
        for name, value in (('..1', 1), ('..2', 2)):
            os.mkdir(os.path.join(self.folder, name))
            with open(os.path.join(self.folder, name, 'embagd.yaml'), 'w',
                      encoding='utf-8') as file:
                file.write('queries_max: %d\n' % value)
        os.symlink('..1', os.path.join(self.folder, '..data'))
        os.remove(self.file)
        os.symlink('..data/embagd.yaml', self.file)
        self.serve('--watch-settings', 'true')
        self.assertEqual(self.list()['queries_max'].value, '1')
        os.symlink('..2', os.path.join(self.folder, '..new'))
        os.rename(os.path.join(self.folder, '..new'), os.path.join(self.folder, '..data'))
        self.wait_value('2')

    def test_a_reload_on_command_is_not_repeated(self):
        self.watch()
        self.reload({'queries_max': 2})
        self.write({'queries_max': 3})
        self.wait_value('3')
        self.wait_lines('settings_reloaded', 2)

    def test_watches_only_if_it_is_told_to(self):
        for flags in ((), ('--watch-settings', 'true')):
            self.serve_with({'watch': '"off"'}, *flags)
            descriptors = '/proc/%d/fd' % self.server.pid
            wait_until(lambda: self.has_watch(descriptors) == bool(flags), SECONDS, 'the watch')
            self.assertEqual(self.has_watch(descriptors), bool(flags))
            self.server.stop()

    def has_watch(self, descriptors):
        """Returns whether a process asks the system to report changes."""
        return any(os.readlink(os.path.join(descriptors, name)) == 'anon_inode:inotify'
                   for name in os.listdir(descriptors))


class Lists(SettingsTest):
    """The list of settings, and the tool."""

    def test_shows_value_origin_kind_and_what_is_pending(self):
        self.serve_with({'loops': 1}, '--threads', '1')
        self.reload({'loops': 2, 'auth_file': '/a'})
        listed = self.list()
        self.assertEqual(listed['loops'], admin_pb.Setting(
            name='loops', value='1', origin=ORIGINS.ORIGIN_FILE, pending=True, pending_value='2'))
        self.assertEqual(listed['threads'], admin_pb.Setting(
            name='threads', value='1', origin=ORIGINS.ORIGIN_FLAG))
        self.assertEqual(listed['auth_file'], admin_pb.Setting(
            name='auth_file', origin=ORIGINS.ORIGIN_DEFAULT, pending=True, pending_value='/a'))
        self.assertEqual(listed['queries_max'], admin_pb.Setting(
            name='queries_max', value='4096', origin=ORIGINS.ORIGIN_DEFAULT, live=True))
        self.assertEqual(listed['admin_listen'].value, self.socket)

    def test_a_path_that_is_not_text_is_escaped(self):
        path = os.path.join(self.folder, 'state-\udcff')
        os.mkdir(path)
        self.serve_with({}, '--state-dir', path)
        self.assertEqual(self.list()['state_dir'].value, path.replace('\udcff', '\\xff'))

    def test_has_all_settings_in_the_order_of_the_help(self):
        self.serve_with({})
        shown = subprocess.run([self.server.process.args[0], '--help'], stdout=subprocess.PIPE,
                               text=True, check=True).stdout
        flags = [line.split()[0][2:].replace('-', '_') for line in shown.splitlines()
                 if line.startswith('  --')]
        self.assertEqual(list(self.list()), flags)

    def test_the_help_marks_those_that_change_at_once(self):
        self.serve_with({})
        shown = subprocess.run([self.server.process.args[0], '--help'], stdout=subprocess.PIPE,
                               text=True, check=True).stdout
        marked = {line.split()[0][2:].replace('-', '_') for line in shown.splitlines()
                  if line.startswith('  --') and line.endswith('  [live]')}
        self.assertEqual(marked, {name for name, setting in self.list().items() if setting.live})

    def test_the_tool_lists_and_reloads(self):
        self.serve_with({'loops': 1, 'queries_max': 5})
        status, said = self.tool('list', '--json')
        self.assertEqual(status, 0, said)
        listed = {setting['name']: setting for setting in json.loads(said)['settings']}
        self.assertEqual(listed['queries_max'], {'name': 'queries_max', 'value': '5',
                                                 'origin': 'file', 'kind': 'live',
                                                 'pending': False})
        self.assertEqual(listed['isa'], {'name': 'isa', 'value': None, 'origin': 'default',
                                         'kind': 'start', 'pending': False})
        self.write({'loops': 2, 'queries_max': 6})
        self.assertEqual(self.tool('reload'), (0, '1 changed, 1 wait for a restart\n'))
        status, said = self.tool('--pending')
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r'^NAME .* PENDING\nloops +1 +file +start +2\n$')
        self.assertEqual(json.loads(self.tool('reload', '--json')[1]), {'changed': 0, 'pending': 1})
        self.write({'loops': 'many'})
        status, said = self.tool('reload')
        self.assertEqual(status, 1)
        self.assertRegex(said, '^FAILED_PRECONDITION: .*loops: many: not a whole number')
        self.assertEqual(self.tool('forget')[0], 2)


class Storm(SettingsTest):
    """Reloads while clients call."""

    def test_no_call_fails_while_settings_change(self):
        """Each of the settings is changed to values that all of the calls keep to."""
        self.serve_with({}, '--loops', '2')
        failed, counts, is_over = [], [0, 0], threading.Event()
        numbered = [pb.LookupRequest(model='spec', request_id=number, queries=[QUERY] * 2)
                    for number in range(5)]

        def call(number):
            with Client(self.server.address) as client:
                while not is_over.is_set():
                    try:
                        if number:
                            client.lookup(asked(2))
                        else:
                            failed.extend(answer for answer in client.stream(numbered)
                                          if answer.error_code)
                    except grpc.RpcError as error:
                        failed.append(error)
                    counts[bool(number)] += 1

        threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(scaled(SIGNALS)):
                self.hang_up({
                    'queries_max': 2 + number, 'indices_max': 4 + number, 'bags_max': 2 + number,
                    'response_bytes_max': 65536 + number, 'in_flight_max': 16 + number,
                    'connections_max': 10 + 1000 * number, 'queue_bytes_max': (1 << 30) - number,
                    'inline_below_us': 1000 * (number % 2), 'message_timeout_ms': 60000 + number,
                    'header_timeout_ms': 60000 - number, 'keepalive_ms': 60000 + number,
                    'watch': ('auto', 'poll', '"off"')[number % 3],
                    'watch_poll_ms': 1000 + number, 'load_threads': number % 3,
                    'access_log': ('errors', 'all', 'sampled')[number % 3],
                    'access_log_per_s_max': 1 + number})
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failed, [])
        self.assertTrue(all(counts), counts)
        self.assertIsNone(self.server.find('reload_failed'))


if __name__ == '__main__':
    unittest.main()
