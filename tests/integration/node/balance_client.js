// Makes lookups with @grpc/grpc-js over a channel with a service configuration, as balance.py asks.
// balance_client.py describes its arguments, input and output.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const WORKERS = 4;
const PAUSE_MS = 20;
const PROTO_ROOT = path.join(__dirname, '..', '..', '..', 'proto');
const REQUEST = {
  model: 'spec', queries: [{ table: 'emb_table', indices: [0, 2], num_bags: 1 }],
};

const [configPath, addresses] = process.argv.slice(2);
const definition = protoLoader.loadSync('embag/v1/embedding_bag.proto', {
  includeDirs: [PROTO_ROOT], keepCase: true, longs: String,
});
const { EmbeddingBag } = grpc.loadPackageDefinition(definition).embag.v1;
const client = new EmbeddingBag(`ipv4:${addresses}`, grpc.credentials.createInsecure(), {
  'grpc.service_config': fs.readFileSync(configPath, 'utf8'),
});
// grpc-js does not take waitForReady from the configuration.
const metadata = new grpc.Metadata({ waitForReady: true });
const lookup = promisify(client.Lookup.bind(client));

let counts = new Map();
let failed = 0;
let why = '';

async function work() {
  for (;;) {
    try {
      const { version } = await lookup(REQUEST, metadata);
      counts.set(version, (counts.get(version) ?? 0) + 1);
    } catch (error) {
      failed += 1;
      why = error.message;
    }
    await new Promise((resolve) => { setTimeout(resolve, PAUSE_MS); });
  }
}

function take() {
  const line = [...counts].map(([version, count]) => `${version}:${count}`);
  line.push(`failed:${failed}`, why);
  counts = new Map();
  failed = 0;
  return line.join(' ');
}

async function main() {
  try {
    await lookup(REQUEST, metadata);
  } catch (error) {
    console.log(grpc.status[error.code]);
    process.exit(0);
  }
  console.log('OK');
  for (let i = 0; i < WORKERS; i += 1) work();
  const input = readline.createInterface({ input: process.stdin });
  input.on('line', () => console.log(take()));
  input.on('close', () => process.exit(0));
}

main();
