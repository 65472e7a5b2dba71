// Whether a server acts on a frame that parsed (§2.4, stage 2).
const memo = 512; // the most recently settled instructions, by default

export function admit({ phase, gen = '7', current = true, leased = true, instruction: books = {}, frame: f }) {
  if (phase !== 'established' || f.t === 'hello') return { refused: 'pre_hello', ...(phase === 'preHello' && { closes: true }) };
  if (f.gen !== gen || !current) return { refused: 'generation_mismatch' };
  if (!['chunk', 'result'].includes(f.t)) return {};
  const { state, device, since, chunks = [], answered } = books;
  if (state === 'never' || since >= memo) return { refused: 'unknown_instruction' };
  if (device === 'other') return { refused: 'device_mismatch' };
  if (state === 'queued') return { refused: 'instruction_not_committed' };
  if (state === 'settled') return f.t === 'result' ? { ack: 'resultAck' } : {};
  if (f.t === 'result') return leased ? { ack: 'resultAck' } : { refused: 'generation_mismatch', settles: true };
  if (answered && !chunks.includes(f.streamSeq)) return { refused: 'instruction_not_committed', settles: true };
  return { ack: 'chunkAck' };
}
