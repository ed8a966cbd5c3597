"""nginx in front of a server on the same host, as the proxy of a service mesh stands there."""

import os
import shutil
import subprocess

from embagd_process import wait_until

PROGRAM = 'nginx'
START_SECONDS = 10
# Time-outs, sizes and counts that no call reaches: only the server ends calls.
SETTINGS = '''
daemon off;
master_process off;
pid %(directory)s/pid;
error_log stderr;
events { worker_connections 4096; }
http {
    access_log off;
    server {
        listen %(address)s http2;
        keepalive_timeout 1d;
        keepalive_requests 1000000000;
        client_header_timeout 1d;
        client_body_timeout 1d;
        client_max_body_size 0;
        send_timeout 1d;
        http2_max_concurrent_streams 10000;
        client_body_temp_path %(directory)s/body;
        proxy_temp_path %(directory)s/proxy;
        fastcgi_temp_path %(directory)s/fastcgi;
        uwsgi_temp_path %(directory)s/uwsgi;
        scgi_temp_path %(directory)s/scgi;
        location / {
            grpc_pass grpc://127.0.0.1:%(port)d;
            grpc_read_timeout 1d;
            grpc_send_timeout 1d;
        }
    }
}
'''


def is_installed():
    """Returns whether there is an nginx."""
    return shutil.which(PROGRAM) is not None


class GrpcProxy:
    """A proxy that passes calls on to a port of its host.

    - address: where it listens
    """

    def __init__(self, node, port, server_port, directory):
        self.node = node
        self.port = port
        self.address = '%s:%d' % (node.address, port)
        os.makedirs(directory)
        path = os.path.join(directory, 'nginx.conf')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(SETTINGS % {'directory': directory, 'address': self.address,
                                   'port': server_port})
        # A file, because nobody reads while the proxy runs.
        self.log_path = os.path.join(directory, 'log')
        with open(self.log_path, 'wb') as log:
            self.process = subprocess.Popen(
                [*node.under, PROGRAM, '-p', directory, '-c', path], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        wait_until(self.is_listening, START_SECONDS, 'the proxy to listen')

    def is_listening(self):
        """Returns whether the proxy listens."""
        if self.process.poll() is not None:
            with open(self.log_path, encoding='utf-8') as log:
                raise AssertionError('nginx has ended: ' + log.read())
        listening = subprocess.run([*self.node.under, 'ss', '--tcp', '--listening', '--numeric'],
                                   check=True, capture_output=True, text=True).stdout
        return self.address + ' ' in listening

    def close(self):
        """Ends the proxy."""
        self.process.kill()
        self.process.wait()
