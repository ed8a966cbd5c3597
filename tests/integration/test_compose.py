"""deploy/compose.yaml: it matches the image, and the files that it mounts exist."""

import os
import re
import shutil
import subprocess
import unittest

import yaml

import guide
import served
from embagd_process import Repository

FOLDER = os.path.join(served.SOURCE, 'deploy')
SECONDS = 60


def image_lines(instruction):
    """Returns the words of an instruction in the last stage of the container file."""
    last = guide.read('deploy', 'Containerfile').rpartition('\nFROM ')[2]
    return [word for line in re.findall('^%s (.*)$' % instruction, last, re.M)
            for word in line.split()]


class Compose(unittest.TestCase):
    """The file itself, read as YAML."""

    def setUp(self):
        self.text = guide.read('deploy', 'compose.yaml')
        self.content = yaml.safe_load(self.text)
        self.services = self.content['services']
        self.server = self.services['embag']

    def test_builds_the_image_out_of_this_tree(self):
        build = self.server['build']
        context = os.path.normpath(os.path.join(FOLDER, build['context']))
        self.assertEqual(context, served.SOURCE)
        self.assertTrue(os.path.exists(os.path.join(context, build['dockerfile'])))
        copied = re.findall(r'^COPY ((?!--).*) \S+$', guide.read('deploy', 'Containerfile'), re.M)
        self.assertTrue(copied)
        for path in ' '.join(copied).split():
            self.assertTrue(os.path.exists(os.path.join(context, path)), path)

    def test_publishes_the_ports_of_the_image(self):
        published = [port.split(':') for port in self.server['ports']]
        self.assertEqual([port[-1] for port in published], image_lines('EXPOSE'))
        variables = dict(word.split('=') for word in image_lines('ENV'))
        heard = [variables['EMBAG_LISTEN'], variables['EMBAG_HTTP_LISTEN']]
        self.assertEqual([address.split(':')[-1] for address in heard], image_lines('EXPOSE'))
        # The operators' port must not be reachable from the network.
        self.assertEqual([port[:-1] for port in published], [['8600'], ['127.0.0.1', '8601']])

    def test_models_are_where_the_image_looks_for_them(self):
        models, _ = self.server['volumes']
        self.assertTrue(models.endswith(':/models:ro'), models)
        self.assertIn('EMBAG_MODEL_REPOSITORY=/models', image_lines('ENV'))

    def test_state_is_in_a_volume_that_the_image_gives_its_user(self):
        _, state = self.server['volumes']
        name, _, path = state.partition(':')
        self.assertIn(name, self.content['volumes'])
        self.assertEqual(self.server['environment']['EMBAG_STATE_DIR'], path)
        self.assertIn('install -d -m 0700 -o 10001 -g 10001 ' + path,
                      ' '.join(image_lines('RUN')))

    def test_gives_no_right_that_is_not_needed(self):
        self.assertIs(self.server['read_only'], True)
        self.assertEqual(self.server['cap_drop'], ['ALL'])
        self.assertIn('no-new-privileges:true', self.server['security_opt'])
        self.assertNotIn('user', self.server)
        self.assertEqual(image_lines('USER'), ['10001:10001'])

    def test_gives_it_time_to_drain(self):
        told = subprocess.run([os.path.join(served.BUILD, 'embagd'), '--help'], check=True,
                              capture_output=True, text=True, timeout=SECONDS).stdout
        drain_ms = int(re.search(r'--drain-timeout-ms N .*default (\d+)', told)[1])
        grace = re.fullmatch(r'(\d+)s', self.server['stop_grace_period'])[1]
        delay_ms = int(self.server['environment']['EMBAG_DRAIN_DELAY_MS'])
        self.assertGreater(1000 * int(grace), delay_ms + drain_ms)
        told = re.search(r'--stop-timeout (\d+)', guide.read('deploy', 'OPERATIONS.md'))[1]
        self.assertGreater(1000 * int(told), delay_ms + drain_ms)

    def test_the_image_leaves_balancers_time_unless_it_is_told_otherwise(self):
        variables = dict(word.split('=') for word in image_lines('ENV'))
        (source, folder), = [words for words in map(str.split, re.findall(
            r'^COPY (?!--)(.*)$', guide.read('deploy', 'Containerfile').rpartition('\nFROM ')[2],
            re.M)) if words[0].endswith('.yaml')]
        self.assertEqual(variables['EMBAG_CONFIG'], folder + os.path.basename(source))
        variables['EMBAG_CONFIG'] = os.path.join(served.SOURCE, source)
        own = Repository()
        self.addCleanup(own.remove)
        with open(own.join('own.yaml'), 'w', encoding='utf-8') as file:
            file.write('drain_delay_ms: 5000')
        for flags, more, delay in (
                ([], {}, '2000 # file'),
                ([], {'EMBAG_DRAIN_DELAY_MS': '0'}, '0 # environment'),
                (['--drain-delay-ms', '1'], {}, '1 # flag'),
                (['--config', own.join('own.yaml')], {}, '5000 # file')):
            told = subprocess.run(
                [os.path.join(served.BUILD, 'embagd'), *flags, '--print-config'], check=True,
                capture_output=True, text=True, timeout=SECONDS, env={**variables, **more}).stdout
            self.assertIn('\ndrain_delay_ms: ' + delay, told)

    def test_mounts_files_that_are_there(self):
        for name in 'prometheus', 'grafana':
            self.assertEqual(self.services[name]['profiles'], ['monitoring'])
            for volume in self.services[name]['volumes']:
                path = volume.split(':')[0]
                self.assertTrue(os.path.exists(os.path.join(FOLDER, path)), path)
        job, = yaml.safe_load(guide.read('deploy', 'monitoring', 'prometheus.yaml'))[
            'scrape_configs']
        self.assertEqual(job['static_configs'], [{'targets': ['embag:8601']}])
        # The folders in which Prometheus and Grafana look, according to the other mounts.
        rules = [volume.split(':')[1] for volume in self.services['prometheus']['volumes']]
        self.assertIn('/etc/prometheus/alerts.yaml', rules)
        boards = yaml.safe_load(guide.read('deploy', 'monitoring', 'grafana-provisioning',
                                           'dashboards', 'embag.yaml'))
        folder = boards['providers'][0]['options']['path']
        mounted = [volume.split(':')[1] for volume in self.services['grafana']['volumes']]
        self.assertIn(folder, [os.path.dirname(path) for path in mounted])

    def test_alerts_are_the_same_file_as_those_of_the_chart(self):
        path = os.path.join(FOLDER, 'monitoring', 'alerts.yaml')
        self.assertTrue(os.path.samefile(path, os.path.join(FOLDER, 'helm', 'embag', 'files',
                                                            'alerts.yaml')))



@unittest.skipUnless(shutil.which('podman-compose'), 'podman-compose is not installed')
class PodmanCompose(unittest.TestCase):
    """How podman-compose treats the directory of models."""

    def bring_up(self, *files, status=0, **variables):
        """Returns the commands that it would run, by default for compose.yaml alone."""
        options = [word for name in files or ('compose.yaml',)
                   for word in ('-f', os.path.join(FOLDER, name))]
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith('EMBAG_')}
        done = subprocess.run(
            # podman-compose has no read-only command. It gets `true` as its podman, which starts
            # nothing.
            ['podman-compose', '--podman-path', shutil.which('true'), '--dry-run',
             *options, 'up', '--no-build'],
            env={**environment, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=SECONDS)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def test_wants_one(self):
        self.assertIn('set it to the directory of the models', self.bring_up(status=1))

    def test_takes_an_absolute_one(self):
        models = Repository()
        self.addCleanup(models.remove)
        self.assertIn('-v %s:/models:ro' % models.path, self.bring_up(EMBAG_MODELS=models.path))

    def test_takes_one_that_begins_with_a_dot_from_its_own_directory_on(self):
        for name, path in ('./helm', os.path.join(FOLDER, 'helm')), ('../proto', 'proto'):
            self.assertIn('-v %s:/models:ro' % os.path.join(served.SOURCE, path),
                          self.bring_up(EMBAG_MODELS=name))

    def test_mounts_a_directory_of_the_host_for_resident_tables(self):
        files, models = ('compose.yaml', 'compose.resident.yaml'), FOLDER
        said = self.bring_up(*files, EMBAG_MODELS=models, EMBAG_RESIDENT='/srv/embag-resident')
        server, = (line for line in said.splitlines() if '-v /srv/embag-resident:/resident' in line)
        self.assertIn('-e EMBAG_RESIDENT_DIR=/resident', server)
        # The settings of compose.yaml apply too.
        self.assertIn('-v %s:/models:ro' % models, server)
        self.assertIn('-e EMBAG_STATE_DIR=/var/lib/embag', server)
        self.assertIn('set it to a tmpfs', self.bring_up(*files, status=1, EMBAG_MODELS=models))

    def test_takes_a_plain_name_for_that_of_a_volume(self):
        """compose.yaml documents this."""
        self.assertIn('-v deploy_helm:/models:ro', self.bring_up(EMBAG_MODELS='helm'))


if __name__ == '__main__':
    unittest.main()
