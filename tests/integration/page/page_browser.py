"""A headless Chromium, driven by its DevTools protocol over a pair of pipes."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

START_SECONDS = 60
ANSWER_SECONDS = 60
FLAGS = ['--headless=new', '--remote-debugging-pipe', '--no-first-run', '--disable-gpu',
         '--disable-background-networking', '--disable-component-update', '--disable-sync',
         '--disable-extensions', '--disable-dev-shm-usage', '--no-default-browser-check',
         '--force-color-profile=srgb', '--hide-scrollbars']


def find_chromium():
    """Returns the program's path, or None."""
    return shutil.which('chromium') or shutil.which('chromium-browser')


def high_pipe():
    """Returns a pipe whose descriptors are at least 10, because Chromium uses the lower ones
    itself."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high


class Browser:
    """One process with its own profile, and the answers and events that it sends."""

    def __init__(self):
        self.home = tempfile.mkdtemp(prefix='embag-page-')
        command_out, self.commands = high_pipe()
        self.messages, message_in = high_pipe()
        flags = FLAGS + ['--user-data-dir=' + os.path.join(self.home, 'profile')]
        if os.geteuid() == 0:
            flags.append('--no-sandbox')
        self.process = subprocess.Popen(
            ['bash', '-c', 'exec "$@" 3<&%d 4>&%d' % (command_out, message_in), '-',
             find_chromium(), *flags, 'about:blank'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(command_out, message_in), env={**os.environ, 'HOME': self.home})
        os.close(command_out)
        os.close(message_in)
        self.changed = threading.Condition()
        self.answers = {}
        self.listeners = {}
        self.asked = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.call('Browser.getVersion', seconds=START_SECONDS)

    def _read(self):
        with os.fdopen(self.messages, 'rb') as file:
            rest = b''
            while chunk := file.read1(1 << 16):
                *whole, rest = (rest + chunk).split(b'\0')
                for message in whole:
                    self._take(json.loads(message))

    def _take(self, message):
        with self.changed:
            if 'id' in message:
                self.answers[message['id']] = message
                self.changed.notify_all()
            elif message.get('sessionId') in self.listeners:
                self.listeners[message['sessionId']](message['method'], message['params'])

    def call(self, method, session=None, seconds=ANSWER_SECONDS, **params):
        """Sends a command and returns its result."""
        with self.changed:
            self.asked += 1
            number = self.asked
        message = {'id': number, 'method': method, 'params': params}
        if session:
            message['sessionId'] = session
        os.write(self.commands, json.dumps(message).encode() + b'\0')
        with self.changed:
            if not self.changed.wait_for(lambda: number in self.answers, seconds):
                raise AssertionError('the browser did not answer %s' % method)
            answer = self.answers.pop(number)
        if 'error' in answer:
            raise AssertionError('%s: %s' % (method, answer['error']['message']))
        return answer['result']

    def listen(self, session, listener):
        """Calls listener(method, params) for each event of the session."""
        with self.changed:
            self.listeners[session] = listener

    def close(self):
        """Stops the browser and removes its profile."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        shutil.rmtree(self.home, ignore_errors=True)


class Tab:
    """A page at an address, `width` pixels wide, in the light or dark colour scheme."""

    def __init__(self, browser, address, width=1280, scheme='light'):
        self.browser = browser
        self.errors = []    # console messages and uncaught exceptions
        self.requests = []  # addresses that the page requested
        self.target = browser.call('Target.createTarget', url='about:blank')['targetId']
        self.session = browser.call(
            'Target.attachToTarget', targetId=self.target, flatten=True)['sessionId']
        browser.listen(self.session, self._on_event)
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')
        self.resize(width)
        self.call('Emulation.setEmulatedMedia',
                  features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        self.call('Page.navigate', url=address)

    def _on_event(self, method, params):
        if method == 'Runtime.exceptionThrown':
            details = params['exceptionDetails']
            self.errors.append(details.get('exception', {}).get('description', details['text']))
        elif method == 'Runtime.consoleAPICalled':
            self.errors.append(str([a.get('value') for a in params['args']]))
        elif method == 'Log.entryAdded' and params['entry']['level'] in ('error', 'warning'):
            self.errors.append(params['entry']['text'])
        elif method == 'Network.requestWillBeSent':
            self.requests.append(params['request']['url'])

    def call(self, method, **params):
        """Sends a command to the page."""
        return self.browser.call(method, self.session, **params)

    def resize(self, width):
        """Sets the width of the window."""
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=900,
                  deviceScaleFactor=1, mobile=False)

    def value(self, expression):
        """Returns the value of a JavaScript expression."""
        result = self.call('Runtime.evaluate', expression=expression, returnByValue=True,
                           awaitPromise=True)
        if 'exceptionDetails' in result:
            raise AssertionError('%s: %s' % (expression[:80], result['result']['description']))
        return result['result'].get('value')

    def text(self, selector):
        """Returns the text of the first element that a selector matches, or None."""
        return self.value('(document.querySelector(%s) || {}).textContent' % json.dumps(selector))

    def wait(self, expression, seconds=60):
        """Waits until an expression is true and returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.value(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError('not within %g s: %s' % (seconds, expression))
            time.sleep(0.1)

    def shoot(self, path):
        """Writes a screenshot of the whole page."""
        data = self.call('Page.captureScreenshot', captureBeyondViewport=True)['data']
        with open(path, 'wb') as file:
            file.write(base64.b64decode(data))

    def close(self):
        """Closes the page, once."""
        if self.target:
            self.browser.call('Target.closeTarget', targetId=self.target)
        self.target = None
