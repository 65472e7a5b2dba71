// An implementation of the protocol's frames, hello payloads, epochs and base64 in one
// file. It shares nothing with the Go code: read it to see how little an executor in
// another language needs.
import crypto from 'node:crypto';
import fs from 'node:fs';

export const load = name => JSON.parse(fs.readFileSync(new URL(`../${name}.json`, import.meta.url), 'utf8'));
export const sets = Object.fromEntries(load('closed-sets').cases.map(c => [c.name, c.expect.members]));
const limits = Object.fromEntries(sets.DEVICE_WS_LIMITS);

// ---- values: a check returns the value it was given, or throws the member's path.
class Wrong extends Error {}
const no = path => { throw new Wrong(path); };
const join = (path, name) => (path ? `${path}.${name}` : name);
const str = (v, p) => (typeof v === 'string' ? v : no(p));
const bool = (v, p) => (typeof v === 'boolean' ? v : no(p));
const filled = (v, p) => str(v, p) || no(p);
const exact = (v, p) => (str(v, p).isWellFormed() ? v : no(p)); // with half a character replaced, something else would be done
const exactFilled = (v, p) => filled(exact(v, p), p);
const atLeast = min => (v, p) => (Number.isSafeInteger(v) && v >= min ? v + 0 : no(p)); // + 0 makes 0 of -0
const int = atLeast(Number.MIN_SAFE_INTEGER), count = atLeast(0);
const gen = (v, p) => (/^(0|[1-9][0-9]*)$/.test(str(v, p)) ? v : no(p));
const base64 = (v, p) => (Buffer.from(str(v, p), 'base64').toString('base64') === v ? v : no(p));
const sha256 = (v, p) => (/^[0-9a-f]{64}$/i.test(str(v, p)) ? v.toLowerCase() : no(p));
const oneOf = set => (v, p) => (set.includes(v) ? v : no(p));
const isObject = v => typeof v === 'object' && v !== null && !Array.isArray(v);
const list = of => (v, p) => (Array.isArray(v) ? v.map((x, i) => of(x, `${p}[${i}]`)) : no(p));
const map = of => (v, p) => (isObject(v) ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, of(x, join(p, k))])) : no(p));
const object = shape => (v, p = '') => { // "name?" may be absent; what the shape does not name is left out
  if (!isObject(v)) no(p);
  const out = {};
  for (const [key, check] of Object.entries(shape)) {
    const name = key.replace('?', '');
    if (Object.hasOwn(v, name)) out[name] = check(v[name], join(p, name));
    else if (name === key) no(join(p, name));
  }
  return out;
};

// ---- §2.2 and §3.3: what a device says. The order of members is the order of encoding.
const info = object({ path: str, kind: oneOf(['file', 'dir', 'symlink', 'other']), size: int, mtimeMs: int, 'mode?': int });
const ok = { ok: bool, kind: str };
const outcomes = {
  exec: object({ ...ok, exitCode: int, 'truncated?': object({ stdout: bool, stderr: bool }) }),
  read: object(ok),
  stat: object({ ...ok, 'info?': info, 'entries?': list(info), 'existsValue?': bool, 'canonicalPath?': str, 'linkTarget?': (v, p) => (v === null ? v : str(v, p)) }),
  write: object({ ...ok, canonicalPath: str, 'inode?': str, 'created?': bool }),
  void: object(ok),
  cancelled: object({ ...ok, state: oneOf(sets.DEVICE_CANCEL_STATES) }),
};
const failure = object({ ok: bool, errorCode: oneOf(sets.DEVICE_OUTCOME_ERROR_CODES), message: str });
const outcome = (v, p) => {
  if (!object({ ok: bool })(v, p).ok) return failure(v, p);
  return Object.hasOwn(outcomes, str(v.kind, join(p, 'kind'))) ? outcomes[v.kind](v, p) : no(join(p, 'kind'));
};
const chunkHead = { t: str, gen, instructionId: filled, streamSeq: count, kind: oneOf(sets.DEVICE_CHUNK_KINDS) };
const absent = (v, p) => no(p);
export const device = {
  hello: object({ t: str, protocolVersion: int, deviceId: filled, epoch: str, signatureB64: str, platform: object({ os: str, arch: str, executorVersion: str }),
    workspaceRoot: str, pathFlavor: str, supports: list(str), 'resuming?': object({ unackedResults: count }) }),
  generationAck: object({ t: str, gen }),
  heartbeat: object({ t: str, gen, seq: count, inflight: list(str) }),
  result: object({ t: str, gen, instructionId: filled, deviceSeq: count, outcome }),
  chunk: v => object(v.kind === 'exit' ? { ...chunkHead, 'dataB64?': absent, exitCode: int } : { ...chunkHead, dataB64: base64, 'exitCode?': absent })(v),
  goodbye: object({ t: str, gen, reason: oneOf(sets.DEVICE_GOODBYE_REASONS), 'graceMs?': count }),
};

// ---- §2.3 and §3: what a server says.
const id = { t: str, gen, instructionId: filled };
const soft = (check, other) => v => { try { return check(v); } catch { return other; } };
const instruction = object({ 'rootSessionId?': soft(str, ''), 'issuedSeq?': soft(int, 0), kind: filled, args: (v, p) => (isObject(v) ? v : no(p)),
  'cwd?': exactFilled, 'shellEnv?': (v, p) => (Object.keys(v ?? {}).every(k => k.isWellFormed()) ? map(exact)(v, p) : no(p)), timeoutMs: int });
const part = { part: oneOf(['begin', 'chunk', 'commit']) };
const payload = v => object(v.part === 'chunk' ? { ...part, offset: count, dataB64: base64 } : { ...part, totalLen: count, sha256 })(v);
export const server = {
  challenge: object({ t: str, nonce: filled, protocolVersion: int }),
  helloAck: object({ t: str, ok: (v, p) => v === true || no(p), heartbeatIntervalMs: atLeast(1), maxInflight: atLeast(1), gen, pendingInstructions: list(str), chunkWatermarks: map(atLeast(-1)) }),
  helloReject: object({ t: str, code: str, 'minProtocolVersion?': soft(int) }),
  instruction: v => ({ ...object(id)(v), rootSessionId: '', issuedSeq: 0, ...instruction(v) }),
  payload: v => ({ ...object(id)(v), ...payload(v) }),
  cancel: object(id), resultAck: object(id), chunkAck: object({ ...id, upToStreamSeq: atLeast(-1) }),
  bye: object({ t: str, gen, reason: str }), ping: object({ t: str }),
};
const path = { path: exact }, write = { ...path, contentLen: count, sha256 };
const args = {
  exec: { command: exact }, execStream: { command: exact }, readTextLines: { ...path, 'offset?': count, 'limit?': count },
  writeFile: write, writeFileExclusive: write, appendFile: write,
  writeFileGuarded: { ...write, 'expect?': object({ canonicalPath: exactFilled, 'fileId?': filled, 'exclusive?': bool, 'noFollow?': bool }) },
  createDir: { ...path, 'recursive?': bool }, remove: { ...path, 'recursive?': bool },
  createTempDir: { 'prefix?': exact }, createTempFile: { 'prefix?': exact, 'suffix?': exact }, statBatch: { paths: list(str) },
};
const owes = { // §3.1, beside cancelled and failures
  read: ['readTextFile', 'readTextLines', 'readBinaryFile'], write: ['writeFile', 'writeFileExclusive', 'writeFileGuarded', 'createTempDir', 'createTempFile'],
  void: ['appendFile', 'createDir', 'remove'], exec: ['exec', 'execStream'],
  stat: { fileInfo: 'info', listDir: 'entries', canonicalPath: 'canonicalPath', exists: 'existsValue', readLink: 'linkTarget' },
};
const isPath = o => o.canonicalPath !== ''; // where there is one
export const fits = (kind, o) => !o.ok || o.kind === 'cancelled' || (o.kind !== 'stat' ? owes[o.kind].includes(kind) && isPath(o)
  : kind === 'statBatch' || (Object.hasOwn(o, owes.stat[kind] ?? '?') && (kind !== 'canonicalPath' || isPath(o))));

// ---- decoding and encoding
const frameOf = (bytes, limit) => {
  if (bytes.length > limit) return { refused: 'frame_too_large' };
  let v;
  try { v = JSON.parse(bytes.toString('utf8')); } catch { return { refused: 'not_json' }; }
  if (!isObject(v)) return { refused: 'not_object' };
  return typeof v.t === 'string' ? { v } : { refused: 'unknown_type' };
};
const toHex = ({ dataB64, ...f }) => (dataB64 === undefined ? f : { ...f, dataHex: Buffer.from(dataB64, 'base64').toString('hex') });
const fromHex = ({ dataHex, ...f }) => (dataHex === undefined ? f : { ...f, dataB64: Buffer.from(dataHex, 'hex').toString('base64') });
const attempt = (f, wrong) => { try { return f(); } catch (e) { if (e instanceof Wrong) return wrong(e.message); throw e; } };
export function decodeDevice(bytes, phase) {
  const { v, refused } = frameOf(bytes, phase === 'preAuth' ? limits.maxPreAuthFrameBytes : limits.maxFrameBytes);
  if (refused || !Object.hasOwn(device, v.t)) return { refused: refused ?? 'unknown_type' };
  return attempt(() => ({ frame: toHex(device[v.t](v)) }), () => ({ refused: 'bad_shape' }));
}
export function decodeServer(bytes) {
  const { v, refused } = frameOf(bytes, limits.maxFrameBytes);
  if (refused) return { dropped: true };
  if (!Object.hasOwn(server, v.t)) return { ignored: v.t };
  const owed = ['instruction', 'payload'].includes(v.t) && attempt(() => object(id)(v), () => false); // it can be answered
  const read = () => JSON.parse(JSON.stringify(toHex(server[v.t](v)))); // without what a soft check left undefined
  return attempt(() => ({ frame: read() }), m => (owed ? { problem: m, instructionId: owed.instructionId } : { dropped: true }));
}
export const encode = (frames, form) => attempt(() => {
  const f = frames[form.t](fromHex(form));
  if (f.outcome?.kind === 'write') filled(f.outcome.canonicalPath);
  return { text: JSON.stringify(f).replace(/[\u2028\u2029]/g, c => `\\u${c.charCodeAt(0).toString(16)}`) };
}, () => ({ refused: true }));
export const bytesOf = i => (i.textHex ? Buffer.from(i.textHex, 'hex') : Buffer.from(i.text ?? i.parts.map(p => (typeof p === 'string' ? p : p.repeat.repeat(p.times))).join('')));

// ---- §1.3
const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
export const epoch = s => (/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(s) ? [...s].reduce((n, c) => n * 32n + BigInt(alphabet.indexOf(c)), 0n).toString(16).padStart(32, '0') : null);
const u32 = n => { const b = Buffer.alloc(4); b.writeUInt32BE(n); return b; };
export const signed = c => Buffer.concat([Buffer.from('sema.device.hello.v1'), ...[c.nonce, c.deviceId].map(s => Buffer.from(s)).flatMap(b => [u32(b.length), b]), Buffer.from(epoch(c.epoch), 'hex'), u32(c.protocolVersion)]);
export function hello(c) {
  const key = crypto.createPrivateKey({ key: Buffer.from(`302e020100300506032b657004220420${c.seedHex}`, 'hex'), format: 'der', type: 'pkcs8' });
  const bytes = signed(c), signature = crypto.sign(null, bytes, key), verify = b => crypto.verify(null, b, crypto.createPublicKey(key), signature);
  const broken = bytes.length === 102 ? [...bytes.keys()].filter(i => verify(bytes.map((b, j) => (i === j ? b ^ 1 : b)))) : []; // no byte may change
  return { publicKeyB64: crypto.createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64'),
    payloadHex: bytes.toString('hex'), signatureB64: broken.length || !verify(bytes) ? `does not cover bytes ${broken}` : signature.toString('base64') };
}

// ---- smaller things
export const isBase64 = text => attempt(() => ({ hex: Buffer.from(base64(text), 'base64').toString('hex') }), () => ({ refused: true }));
export const isGen = text => attempt(() => gen(text) !== undefined, () => false);
export const argsOf = (kind, text) => attempt(() => ({ args: object(args[kind] ?? path)(soft(JSON.parse)(text), 'args') }), m => ({ invalid: m }));
