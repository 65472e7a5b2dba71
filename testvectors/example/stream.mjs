// How a server judges a command's or a file's stream and its result (§4, §3.1).
import { fits } from './decoder.mjs';

export function stream({ kind, steps }) {
  const exec = /^exec/.test(kind), read = /^read(Text|Binary)/.test(kind), early = new Map(), hex = { stdout: '', stderr: '', data: '' };
  let next = 0, held = 0, now = 0, gap = Infinity, exit, fault, end;
  const take = c => {
    next++;
    if (exec ? c.kind === 'data' : !read || c.kind !== 'data') fault ??= 'chunk_kind';
    else if (exit !== undefined) fault ??= c.kind === 'exit' ? 'exit_duplicate' : 'exit_not_last';
    if (c.kind === 'exit') exit ??= c.exitCode;
    else hex[c.kind] += c.hex;
  };
  const arrive = c => {
    if (c.streamSeq < next || early.has(c.streamSeq)) return;
    if (c.streamSeq > next) {
      if (early.size >= 64 || (held += c.hex.length / 2) > 2 << 20) end = { refused: 'reorder_overflow' };
      else { early.set(c.streamSeq, c); gap = Math.min(gap, now); }
      return;
    }
    for (take(c); early.has(next); ) { const e = early.get(next); early.delete(next); held -= e.hex.length / 2; take(e); }
    gap = early.size ? now : Infinity;
  };
  const finish = o => {
    const broken = !fits(kind, o) ? 'outcome_kind' : !o.ok || o.kind === 'cancelled' ? undefined : early.size ? 'result_before_chunks'
      : fault ?? (!exec ? undefined : exit === undefined ? 'exit_missing' : exit !== o.exitCode ? 'exit_code_mismatch' : undefined);
    end = broken ? { refused: broken } : { accepted: true, chunks: next };
  };
  for (const { chunk, times = 1, outcome: o, waitMs } of steps) {
    if (end) break;
    if (chunk) for (let n = 0; n < times && !end; n++) arrive({ ...chunk, streamSeq: chunk.streamSeq + n, hex: chunk.dataHex ?? '00'.repeat(chunk.zeros ?? 0) });
    else if (o) finish(o);
    else if ((now += waitMs) - gap >= 30000) end = { refused: 'chunk_gap' };
  }
  if (end?.accepted) for (const k in hex) if (hex[k] && hex[k].length < 1 << 16) end[`${k}Hex`] = hex[k];
  return end;
}
