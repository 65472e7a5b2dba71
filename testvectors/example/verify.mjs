// Holds the decoder, the admission and the judge of streams to the vectors beside them.
//
//   node testvectors/example/verify.mjs     exit 0 when every vector of frames and streams passed
import { isDeepStrictEqual } from 'node:util';
import { argsOf, bytesOf, decodeDevice, decodeServer, device, encode, epoch, fits, hello, isBase64, isGen, load, server, sets, signed } from './decoder.mjs';
import { admit } from './admission.mjs';
import { stream } from './stream.mjs';

const run = {
  hello: i => hello(i), epochs: i => ({ bytesHex: epoch(i.epoch) }), base64: i => isBase64(i.text),
  gens: i => ({ canonical: isGen(i.gen) }),
  'device-encode': i => encode(device, i.frame), 'server-encode': i => encode(server, i.frame),
  'device-decode': i => decodeDevice(bytesOf(i), i.phase), 'server-decode': i => decodeServer(bytesOf(i)),
  args: i => argsOf(i.kind, i.text),
  admission: admit, streams: stream,
  outcomes: i => ({ answers: sets.DEVICE_INSTRUCTION_KINDS.filter(k => fits(k, i.outcome)) }),
  limits: i => ({ bytes: bytesOf(i).length, verdict: i.from === 'device' ? decodeDevice(bytesOf(i), i.phase).refused ?? 'ok' : decodeServer(bytesOf(i)).frame ? 'ok' : 'refused' }),
};
let passed = 0, failed = 0;
const check = (file, name, got, want) => {
  if (isDeepStrictEqual(got, want)) passed++;
  else { failed++; console.error(`FAIL ${file}: ${name}\n  got  ${JSON.stringify(got).slice(0, 400)}\n  want ${JSON.stringify(want).slice(0, 400)}`); }
};
for (const [file, f] of Object.entries(run)) for (const c of load(file).cases) check(file, c.name, f(c.input), c.expect);
const foreign = load('foreign');
for (const { name, publicKeyB64, payloadHex, payloadLength, signatureB64, ...c } of foreign.hellos) check('foreign', name, { ...hello(c), n: signed(c).length }, { publicKeyB64, payloadHex, signatureB64, n: payloadLength });
for (const c of foreign.epochs) check('foreign', c.epoch, epoch(c.epoch), c.bytesHex);
for (const c of foreign.base64) check('foreign', c.text, !isBase64(c.text).refused, c.canonical);
for (const c of foreign.deviceToServer) check('foreign', c.name, decodeDevice(Buffer.from(c.text), c.phase).refused ?? 'ok', c.verdict);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
