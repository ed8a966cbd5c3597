// Calls embagd with @grpc/grpc-js as any client would; prints one line for each check, "ok NAME" or
// "FAIL NAME: why". Usage: node interop_client.js --target ADDRESS [--ca FILE [--cert FILE --key
// FILE]]
'use strict';

const assert = require('node:assert');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { parseArgs, promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTO_ROOT = path.join(__dirname, '..', '..', '..', 'proto');
const PROTOS = ['embag/v1/embedding_bag.proto', 'grpc/health/v1/health.proto'];
const STREAMED = 1000;
const LARGE_ROWS = 320; // of 16 KiB each, 5 MiB in all
const WANT = [-2.1, -2.4, 0, 0, -0.2, 0.8];

function request(id) {
  const query = { table: 'emb_table', indices: [0, 2, 3, 4], offsets: [0, 2, 2] };
  return { request_id: id, model: 'spec', queries: [query] };
}

// Returns a request that names the same row of 16 KiB this many times.
function rows(count) {
  const query = { table: 'large', indices_i64: Buffer.alloc(8 * count), indices_per_bag: 1 };
  return { model: 'spec', queries: [query] };
}

const LARGE = rows(LARGE_ROWS);

function checkAnswer(answer) {
  assert.strictEqual(answer.error_code, 0, answer.error_message);
  const values = new Float32Array(Uint8Array.from(answer.results[0].values).buffer);
  assert.strictEqual(values.length, WANT.length);
  values.forEach((value, i) => assert(Math.abs(value - WANT[i]) < 1e-5, `values[${i}]`));
}

function lookup(client, message, options = {}) {
  return new Promise((resolve, reject) => {
    const done = (error, answer) => (error ? reject(error) : resolve(answer));
    client.Lookup(message, { deadline: Date.now() + 30000, ...options }, done);
  });
}

async function fails(promise, code, pattern = /./) {
  const error = await promise.then(() => assert.fail('the call was answered'), (e) => e);
  assert.strictEqual(error.code, code, error.message);
  assert.match(error.details, pattern);
}

// Resolves to all answers of a stream. The caller writes the requests.
function answersOf(call) {
  return new Promise((resolve, reject) => {
    const answers = [];
    call.on('data', (answer) => answers.push(answer));
    call.on('error', reject);
    call.on('end', () => resolve(answers));
  });
}

const CHECKS = {
  unary: async ({ client }) => checkAnswer(await lookup(client, request(7))),

  stream: async ({ client }) => {
    const call = client.LookupStream({ deadline: Date.now() + 30000 });
    const answers = answersOf(call);
    for (let id = 1; id <= STREAMED; id++) call.write(request(id));
    call.end();
    (await answers).forEach(checkAnswer);
    assert.strictEqual(new Set((await answers).map((each) => each.request_id)).size, STREAMED);
  },

  large: async ({ client, connect }) => {
    await fails(lookup(client, LARGE), grpc.status.RESOURCE_EXHAUSTED);
    const patient = connect({ 'grpc.max_receive_message_length': 64 * 1024 * 1024 });
    const answer = await lookup(patient, LARGE);
    assert.strictEqual(answer.results[0].values.length, LARGE_ROWS * 4096 * 4);
  },

  deadline: async ({ client }) => {
    const call = client.LookupStream({ deadline: Date.now() + 200 });
    await fails(answersOf(call), grpc.status.DEADLINE_EXCEEDED);
  },

  cancel: async ({ client }) => {
    for (let i = 0; i < 100; i++) {
      const call = client.LookupStream();
      const ended = fails(answersOf(call), grpc.status.CANCELLED);
      call.cancel();
      await ended;
    }
    checkAnswer(await lookup(client, request(7)));
  },

  error: async ({ client }) => {
    const bad = request(1);
    bad.queries[0].indices = [0, 2, 5, 4];
    await fails(lookup(client, bad), grpc.status.OUT_OF_RANGE, /indices\[2\] = 5\b/);
  },

  gzip: async ({ connect }) => {
    const packed = connect({ 'grpc.default_compression_algorithm': 2 });
    const answer = await lookup(packed, rows(100));
    assert.strictEqual(answer.results[0].values.length, 100 * 4096 * 4);
  },

  health: async ({ health }) => {
    const check = promisify(health.Check.bind(health));
    assert.strictEqual((await check({ service: 'spec' })).status, 'SERVING');
    await fails(check({ service: 'absent' }), grpc.status.NOT_FOUND);
    const expected = { '': 'SERVING', spec: 'SERVING', absent: 'SERVICE_UNKNOWN' };
    for (const [service, status] of Object.entries(expected)) {
      const feed = health.Watch({ service });
      feed.on('error', () => {}); // from the cancel below
      assert.strictEqual((await once(feed, 'data'))[0].status, status);
      feed.cancel();
    }
  },
};

function credentials(options) {
  if (!options.ca) return grpc.credentials.createInsecure();
  const read = (name) => (options[name] ? fs.readFileSync(options[name]) : null);
  return grpc.credentials.createSsl(read('ca'), read('key'), read('cert'));
}

async function main() {
  const text = { type: 'string', default: '' };
  const { values: options } = parseArgs({
    options: { target: text, ca: text, cert: text, key: text },
  });
  const definition = protoLoader.loadSync(PROTOS, {
    includeDirs: [PROTO_ROOT], keepCase: true, longs: String, enums: String, defaults: true,
  });
  const loaded = grpc.loadPackageDefinition(definition);
  const clients = [];
  const connect = (more, Service = loaded.embag.v1.EmbeddingBag) => {
    clients.push(new Service(options.target, credentials(options), {
      'grpc.use_local_subchannel_pool': 1,
      ...(options.ca ? { 'grpc.ssl_target_name_override': 'localhost' } : {}),
      ...more,
    }));
    return clients.at(-1);
  };
  const client = connect({});
  const health = connect({}, loaded.grpc.health.v1.Health);
  for (const [name, check] of Object.entries(CHECKS)) {
    try {
      await check({ client, connect, health });
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`FAIL ${name}: ${error.stack}`);
      process.exitCode = 1;
    }
  }
  clients.forEach((each) => each.close());
  process.exit(); // Otherwise timers of calls keep the process alive until their deadlines.
}

main();
