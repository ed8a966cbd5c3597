"""embag-sync from a real server with the interface of S3: SeaweedFS, which run.sh installs from the
package index where it can."""

import glob
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

from embagd_process import wait_until
from sync_run import SyncTest, files_below, part_folder, read
from tcp_proxy import CHUNK_BYTES, TcpProxy

WEED = os.path.join(os.path.dirname(sys.executable), 'weed')
SECONDS = 60
KEYS = {'AWS_ACCESS_KEY_ID': 'embag', 'AWS_SECRET_ACCESS_KEY': 'secret',
        'AWS_DEFAULT_REGION': 'us-east-1', 'AWS_EC2_METADATA_DISABLED': 'true',
        'AWS_CONFIG_FILE': os.devnull, 'AWS_SHARED_CREDENTIALS_FILE': os.devnull}
BUCKET = 'models'


def free_ports(count):
    """Returns free ports, each of which has a free port 10000 above it, for gRPC."""
    found, held = [], []
    while len(found) < count:
        first, second = socket.socket(), socket.socket()
        held += [first, second]
        first.bind(('127.0.0.1', 0))
        port = first.getsockname()[1]
        try:
            second.bind(('127.0.0.1', port + 10000))
            found.append(port)
        except (OSError, OverflowError):
            pass
    for each in held:
        each.close()
    return found


class BreakingProxy(TcpProxy):
    """Breaks the first connections off in the middle of a file."""

    breaks = 4

    async def _carry(self, reader, writer, is_held):
        if not is_held:
            await super()._carry(reader, writer, is_held)
            return
        left = 300000
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
            left -= len(data)
            if left < 0 < self.breaks:
                self.breaks -= 1
                writer.transport.abort()
                return
        writer.close()


@unittest.skipUnless(os.path.exists(WEED) and importlib.util.find_spec('boto3'),
                     'SeaweedFS or boto3 is not installed')
class S3(SyncTest):
    """A bucket with the repository below the prefix `repo/x`."""

    @classmethod
    def setUpClass(cls):
        import boto3
        from botocore.config import Config
        super().setUpClass()
        environment = mock.patch.dict(os.environ, KEYS)
        environment.start()
        cls.addClassCleanup(environment.stop)
        cls.data = tempfile.mkdtemp(prefix='embag-test-')
        cls.addClassCleanup(shutil.rmtree, cls.data)
        keys = os.path.join(cls.data, 's3.json')
        with open(keys, 'w', encoding='utf-8') as file:
            json.dump({'identities': [{'name': 'test', 'actions': ['Admin'], 'credentials': [
                {'accessKey': 'embag', 'secretKey': 'secret'}]}]}, file)
        master, volume, filer, cls.port = free_ports(4)
        log = open(os.path.join(cls.data, 'log'), 'wb')
        cls.addClassCleanup(log.close)
        server = subprocess.Popen(
            [WEED, '-logtostderr=true', 'server', '-dir=' + cls.data, '-ip=127.0.0.1',
             '-ip.bind=127.0.0.1', '-master.port=%d' % master, '-volume.port=%d' % volume,
             '-filer.port=%d' % filer, '-s3', '-s3.port=%d' % cls.port, '-s3.config=' + keys,
             '-s3.port.iceberg=0', '-s3.port.lance=0', '-master.telemetry=false',
             '-master.volumeSizeLimitMB=64', '-volume.max=20'],
            stdout=log, stderr=log, cwd=cls.data)

        def stop():
            server.kill()
            server.wait()
            for port in (master, volume, filer, cls.port):
                for path in glob.glob('/tmp/seaweedfs-*-%d.sock' % port) + glob.glob(
                        '/tmp/seaweedfs-*-grpc-%d.sock' % (port + 10000)):
                    os.unlink(path)
        cls.addClassCleanup(stop)
        cls.endpoint = 'http://127.0.0.1:%d' % cls.port
        cls.client = boto3.client('s3', endpoint_url=cls.endpoint, config=Config(
            s3={'addressing_style': 'path'}, retries={'max_attempts': 1}))
        wait_until(lambda: cls.is_ready(server), SECONDS, 'SeaweedFS')

    @classmethod
    def is_ready(cls, server):
        """Creates the bucket and an object in it, which takes a first volume."""
        from botocore.exceptions import BotoCoreError, ClientError
        assert server.poll() is None, read(cls.data, 'log')[-3000:]
        try:
            if BUCKET not in [each['Name'] for each in cls.client.list_buckets()['Buckets']]:
                cls.client.create_bucket(Bucket=BUCKET)
            cls.client.put_object(Bucket=BUCKET, Key='ready', Body=b'1')
        except (BotoCoreError, ClientError):
            return False
        return True

    def setUp(self):
        super().setUp()
        self.prefix = 'repo/' + os.path.basename(self.folder)
        self.url = 's3://%s/%s' % (BUCKET, self.prefix)
        self.write_version(1)
        self.upload()

    def upload(self):
        """Copies the folder `source` to the bucket, the manifests last."""
        files = files_below(self.join('source'))
        for path in sorted(files, key=lambda each: each.endswith('manifest.yaml')):
            self.client.put_object(Bucket=BUCKET, Key=self.prefix + '/' + path, Body=files[path])

    def run_sync(self, *options, to='copy'):
        """Runs embag-sync with the server's address."""
        return super().run_sync('--endpoint', self.endpoint, *options, to=to)

    def test_parts_routers_and_changed_files_are_copied(self):
        self.write_config('versions: {keep: 3}\n')
        self.upload()
        self.syncs('--part', '1/3')
        self.assert_part(1, 1)
        self.write_version(2)
        self.upload()
        self.assertIn('copied, 2 files of 3', self.syncs('--part', '1/3'))
        self.assert_part(2, 1)
        self.assertIn('0 versions copied, 2 were there', self.syncs('--part', '1/3'))
        self.syncs('--router', to='router')
        self.assertEqual(sorted(files_below(self.join('router'))), [
            'm/1/manifest.yaml', 'm/1/small.embag', 'm/2/manifest.yaml', 'm/2/small.embag',
            'm/model.yaml'])
        for each in self.client.list_objects_v2(
                Bucket=BUCKET, Prefix=self.prefix + '/m/1/')['Contents']:
            self.client.delete_object(Bucket=BUCKET, Key=each['Key'])
        self.assertIn('1 removed', self.syncs('--part', '1/3', '--grace', '0'))
        self.assertEqual(self.versions(), ['2'])

    def test_a_version_without_a_manifest_does_not_exist_yet(self):
        self.client.delete_object(Bucket=BUCKET, Key=self.prefix + '/m/1/manifest.yaml')
        self.assertIn('0 versions copied', self.syncs('--part', '1/3'))
        self.upload()
        self.assertIn('1 versions copied', self.syncs('--part', '1/3'))

    def test_manifests_that_did_not_change_are_not_sent_again(self):
        from embag.sync import open_store
        store = open_store(self.url, self.endpoint)
        content = store.read('m/1/manifest.yaml', 1 << 20, '')
        self.assertEqual(content.data, read(self.join('source', 'm', '1', 'manifest.yaml')))
        again = store.read('m/1/manifest.yaml', 1 << 20, content.tag)
        self.assertEqual((again.tag, again.data), (content.tag, None))
        self.assertIsNone(store.read('m/2/manifest.yaml', 1 << 20, ''))

    def test_folders_with_more_objects_than_a_page_are_listed(self):
        from embag.sync import open_store
        store = open_store(self.url, self.endpoint)
        with mock.patch.object(store, '_client', wraps=store._client) as client:
            pages = store._client.get_paginator('list_objects_v2')
            client.get_paginator.return_value = mock.Mock(
                paginate=lambda **fields: pages.paginate(PaginationConfig={'PageSize': 1},
                                                         **fields))
            client.get_paginator.side_effect = None
            listing = store.list('m/1')
        self.assertEqual(sorted(listing.folders), [part_folder(part) for part in range(3)])
        self.assertEqual(sorted(listing.files), ['manifest.yaml', 'small.embag'])

    def test_errors_say_what_is_wrong(self):
        self.url = 's3://none/x'
        self.refuses('--part', '1/3', because='s3://none/x/: NoSuchBucket')
        self.url = 's3://%s/none' % BUCKET
        self.refuses('--part', '1/3', because='s3://%s/none: has no models' % BUCKET)
        self.url = 's3://%s/%s' % (BUCKET, self.prefix)
        with mock.patch.dict(os.environ, AWS_SECRET_ACCESS_KEY='wrong'):
            self.refuses('--part', '1/3', because='SignatureDoesNotMatch')
        environment = {name: text for name, text in os.environ.items() if 'AWS_' not in name}
        with mock.patch.dict(os.environ, environment, clear=True), \
                mock.patch.dict(os.environ, AWS_EC2_METADATA_DISABLED='true',
                                AWS_CONFIG_FILE=os.devnull,
                                AWS_SHARED_CREDENTIALS_FILE=os.devnull):
            self.refuses('--part', '1/3', because='credentials')
        with mock.patch('embag.sync.errors.delay_s', lambda failures: 0):
            done = super().run_sync('--endpoint', 'http://127.0.0.1:1', '--part', '1/3')
        self.assertEqual(done.returncode, 1)
        self.assertIn('Could not connect to the endpoint URL', done.stderr)
        self.assertEqual(self.versions(), [])

    def test_connections_that_break_do_not_end_a_copy(self):
        from embag.sync import download, stores
        proxy = BreakingProxy(self.port)
        self.addCleanup(proxy.close)
        opens, offsets = stores.S3Store.open, []

        def open_at(store, path, offset):
            offsets.append(offset)
            return opens(store, path, offset)
        with mock.patch.object(stores.S3Store, 'open', open_at), \
                mock.patch.object(download, 'delay_s', lambda failures: 0.01):
            done = super().run_sync('--endpoint', 'http://' + proxy.address, '--part', '1/3')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(proxy.breaks, 0)
        self.assertGreater(max(offsets), 0)
        self.assert_part(1, 1)

    def test_a_copy_that_hangs_ends_when_it_is_stopped(self):
        from embag.sync.errors import Stopped
        from embag.sync.local_repository import LocalRepository
        from embag.sync.mirror import Mirror, Options
        from embag.sync.stores import open_store
        from embag.sync.version_files import Role
        local = LocalRepository(self.join('copy'))
        self.addCleanup(local.close)
        mirror = Mirror(open_store(self.url, 'http://127.0.0.1:1'), local,
                        Options(Role(1, 3)), lambda text, is_error: None)
        timer = threading.Timer(0.2, mirror.stop)
        timer.start()
        self.addCleanup(timer.join)
        with self.assertRaises(Stopped):
            mirror.run_round()
