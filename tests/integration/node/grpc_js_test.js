// Runs lookups with a stock @grpc/grpc-js client. Usage: node grpc_js_test.js EMBAGD Prints "N
// passed, N failed" at the end.
'use strict';

const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTO_ROOT = path.join(__dirname, '..', '..', '..', 'proto');
const SPEC = [[-0.2, -0.6], [-0.1, -0.4], [-1.9, -1.8], [-1.0, 1.5], [0.8, -0.7]];
const LARGE_ROWS = 64;
const LARGE_COLUMNS = 4096;
const START_MS = 60000;

// Returns a .npy file of f32 with two dims.
function npy(rows, columns, values) {
  const dict = `{'descr': '<f4', 'fortran_order': False, 'shape': (${rows}, ${columns}), }`;
  const header = dict.padEnd(Math.ceil((dict.length + 11) / 64) * 64 - 11) + '\n';
  const start = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, 0, 0]);
  start.writeUInt16LE(header.length, 8);
  return Buffer.concat([start, Buffer.from(header), Buffer.from(Float32Array.from(values).buffer)]);
}

function writeRepository() {
  const repository = fs.mkdtempSync(path.join(os.tmpdir(), 'embag-node-'));
  const version = path.join(repository, 'spec', '1');
  fs.mkdirSync(version, { recursive: true });
  fs.writeFileSync(path.join(version, 'emb_table.npy'), npy(5, 2, SPEC.flat()));
  const large = Array.from({ length: LARGE_ROWS * LARGE_COLUMNS }, (_, i) => i % 1000);
  fs.writeFileSync(path.join(version, 'large.npy'), npy(LARGE_ROWS, LARGE_COLUMNS, large));
  return repository;
}

// Starts embagd on a free port; resolves to the process and its address.
function startServer(embagd, repository) {
  const environment = Object.entries(process.env).filter(([key]) => !key.startsWith('EMBAG_'));
  const server = spawn(
    embagd, ['--model-repository', repository, '--listen', '127.0.0.1:0', '--http-listen', 'none'],
    { stdio: ['ignore', 'ignore', 'pipe'], env: Object.fromEntries(environment) });
  let log = '';
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no event=ready in: ' + log)), START_MS);
    server.on('exit', (code) => reject(new Error(`embagd exited with ${code}: ${log}`)));
    server.stderr.on('data', (text) => {
      log += text;
      const address = /event=listening .*?address="?([\d.]+:\d+)/.exec(log);
      if (address && /event=ready\b/.test(log)) {
        clearTimeout(timer);
        resolve({ server, address: address[1] });
      }
    });
  });
}

function ints(values) {
  return Buffer.from(BigInt64Array.from(values, BigInt).buffer);
}

function floats(bytes) {
  const copy = Uint8Array.from(bytes);
  return Array.from(new Float32Array(copy.buffer));
}

function example(more = {}) {
  return {
    model: 'spec',
    queries: [{
      table: 'emb_table', indices_i64: ints([0, 2, 3, 4]), offsets_i64: ints([0, 2, 2]),
      weights_f32: [0.5, 0.5, 0.5, 0.5], default_index: 0,
    }],
    ...more,
  };
}

function checkExample(answer) {
  assert.deepStrictEqual(answer.results[0].shape, ['3', '2']);
  const want = [-1.05, -1.2, -0.2, -0.6, -0.1, 0.4];
  floats(answer.results[0].values).forEach((value, i) => {
    assert(Math.abs(value - want[i]) < 1e-6, `values[${i}] = ${value}`);
  });
}

function large(rows) {
  const indices = Array.from({ length: rows }, (_, i) => i % LARGE_ROWS);
  return {
    model: 'spec',
    queries: [{ table: 'large', indices_i64: ints(indices), reduction: 'REDUCTION_NONE' }],
  };
}

function lookup(client, request, options = {}) {
  const deadline = Date.now() + (options.timeout ?? 20000);
  return new Promise((resolve, reject) => {
    const call = client.Lookup(request, { deadline }, (error, answer) => {
      if (error) reject(error);
      else resolve(answer);
    });
    options.onCall?.(call);
  });
}

async function fails(promise, code, pattern) {
  const error = await promise.then(() => assert.fail('the call was answered'), (e) => e);
  assert.strictEqual(error.code, code, error.message);
  if (pattern) assert.match(error.details, pattern);
}

// Sends all requests on one stream; resolves to the answers, rejects with the stream's error.
function stream(client, requests) {
  return new Promise((resolve, reject) => {
    const answers = [];
    const call = client.LookupStream({ deadline: Date.now() + 20000 });
    call.on('data', (answer) => answers.push(answer));
    call.on('error', reject);
    call.on('end', () => resolve(answers));
    requests.forEach((request) => call.write(request));
    call.end();
  });
}

const TESTS = {
  'answers a lookup': async (client) => checkExample(await lookup(client, example())),

  'echoes the request id and names model and version': async (client) => {
    const answer = await lookup(client, example({ request_id: '18446744073709551615' }));
    assert.strictEqual(answer.request_id, '18446744073709551615');
    assert.deepStrictEqual([answer.model, answer.version], ['spec', '1']);
  },

  'answers many lookups at once': async (client) => {
    const answers = await Promise.all(Array.from({ length: 500 }, () => lookup(client, example())));
    answers.forEach(checkExample);
  },

  'answers a stream by request ids': async (client) => {
    const requests = Array.from({ length: 1000 }, (_, i) => example({ request_id: i + 1 }));
    const answers = await stream(client, requests);
    assert.strictEqual(new Set(answers.map((answer) => answer.request_id)).size, 1000);
    answers.forEach(checkExample);
  },

  'keeps a stream alive after an error': async (client) => {
    const bad = example({ model: 'nowhere', request_id: 2 });
    const answers = await stream(
      client, [example({ request_id: 1 }), bad, example({ request_id: 3 })]);
    const codes = Object.fromEntries(answers.map((a) => [a.request_id, a.error_code]));
    assert.deepStrictEqual(codes, { 1: 0, 2: grpc.status.NOT_FOUND, 3: 0 });
  },

  'names what is wrong': async (client) => {
    const request = example();
    request.queries[0].indices_i64 = ints([0, 2, 5, 4]);
    await fails(lookup(client, request), grpc.status.OUT_OF_RANGE,
      /queries\[0\] "emb_table": indices\w*\[2\] = 5\b/);
    request.queries[0].offsets_i64 = ints([0, 2, 1]);
    await fails(lookup(client, request), grpc.status.INVALID_ARGUMENT, /offsets\w*\[2\] = 1/);
    await fails(lookup(client, example({ model: 'nowhere' })), grpc.status.NOT_FOUND, /nowhere/);
    await fails(lookup(client, example({ unnormalized: true })), grpc.status.UNIMPLEMENTED,
      /unnormalized/);
  },

  'refuses answers above 4 MiB by default': async (client) => {
    await fails(lookup(client, large(257)), grpc.status.RESOURCE_EXHAUSTED);
    await lookup(client, large(255));
  },

  'takes them with grpc.max_receive_message_length': async (client, connect) => {
    const patient = connect({ 'grpc.max_receive_message_length': 64 * 1024 * 1024 });
    const answer = await lookup(patient, large(1000));
    assert.strictEqual(answer.results[0].values.length, 1000 * LARGE_COLUMNS * 4);
    const values = floats(answer.results[0].values.subarray(0, LARGE_COLUMNS * 4));
    values.forEach((value, i) => assert.strictEqual(value, i % 1000));
  },

  'takes a larger window': async (client, connect) => {
    const wide = connect({
      'grpc.max_receive_message_length': -1, 'grpc-node.flow_control_window': 16 * 1024 * 1024,
    });
    const answers = await Promise.all(Array.from({ length: 10 }, () => lookup(wide, large(500))));
    answers.forEach((answer) => {
      assert.strictEqual(answer.results[0].values.length, 500 * LARGE_COLUMNS * 4);
    });
  },

  'ends at a deadline': async (client) => {
    await fails(lookup(client, example(), { timeout: -1 }), grpc.status.DEADLINE_EXCEEDED);
    await fails(
      new Promise((resolve, reject) => {
        const call = client.LookupStream({ deadline: Date.now() + 200 });
        call.on('data', () => {});
        call.on('error', reject);
        call.on('end', resolve);
      }),
      grpc.status.DEADLINE_EXCEEDED);
  },

  'answers after cancellations': async (client) => {
    for (let i = 0; i < 200; i++) {
      const call = lookup(client, example(), { onCall: (c) => c.cancel() });
      await fails(call, grpc.status.CANCELLED);
      checkExample(await lookup(client, example()));
    }
  },

  'lists models': async (client) => {
    const answer = await new Promise((resolve, reject) => {
      client.ListModels({}, (error, value) => (error ? reject(error) : resolve(value)));
    });
    assert.deepStrictEqual(answer.models.map((model) => model.name), ['spec']);
    assert.deepStrictEqual(
      answer.models[0].versions[0].tables.map((table) => [table.name, table.rows, table.shape]),
      [['emb_table', '5', ['2']], ['large', String(LARGE_ROWS), [String(LARGE_COLUMNS)]]]);
  },
};

async function runTests(address) {
  const definition = protoLoader.loadSync('embag/v1/embedding_bag.proto', {
    includeDirs: [PROTO_ROOT], keepCase: true, longs: String, enums: String, defaults: true,
  });
  const Service = grpc.loadPackageDefinition(definition).embag.v1.EmbeddingBag;
  const clients = [];
  const connect = (options) => {
    clients.push(new Service(address, grpc.credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1, ...options,
    }));
    return clients.at(-1);
  };
  const counts = { passed: 0, failed: 0 };
  const client = connect({});
  for (const [name, test] of Object.entries(TESTS)) {
    try {
      await test(client, connect);
      counts.passed++;
      console.log(`ok: ${name}`);
    } catch (error) {
      counts.failed++;
      console.log(`FAIL: ${name}\n${error.stack}`);
    }
  }
  clients.forEach((each) => each.close());
  return counts;
}

// Sends SIGTERM; resolves to whether the exit status was 0.
function stopServer(server) {
  return new Promise((resolve) => {
    server.removeAllListeners('exit');
    server.on('exit', (code) => resolve(code === 0));
    server.kill('SIGTERM');
  });
}

async function main() {
  const repository = writeRepository();
  try {
    const { server, address } = await startServer(process.argv[2], repository);
    const counts = await runTests(address).finally(async () => {
      if (!(await stopServer(server))) console.log('FAIL: embagd did not exit cleanly');
    });
    if (server.exitCode !== 0) counts.failed++;
    else counts.passed++;
    console.log(`${counts.passed} passed, ${counts.failed} failed`);
    process.exitCode = counts.failed > 0 ? 1 : 0;
  } finally {
    fs.rmSync(repository, { recursive: true, force: true });
  }
}

main();
