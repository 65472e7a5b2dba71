// Package simulation puts a whole executor through what can happen to it, and
// judges every step.
//
// A seed makes a [Schedule]: what a server asks and when, and everything that goes
// wrong meanwhile. Connections are cut at any byte, delayed, slowed, stalled, or
// swallow what they are given; the server restarts, drains, forgets, repeats itself,
// withholds acknowledgements, settles behind the executor's back, lists nothing and
// then all again, says a final bye in the middle of anything, or says nothing; the
// clock jumps; the machine sleeps; the executor is killed and started again;
// commands flood, linger, ignore signals, or cannot be killed at all, and reads
// hang. The executor is the real one, from package executor, and so is the server,
// package refserver; only the network between them is in memory.
//
// There are two grounds to play a schedule on. [Virtual] runs in the bubble of a
// testing/synctest test, with made-up processes and files: minutes pass in
// milliseconds, and since every event has a nanosecond of its own, one seed gives
// one trace. [Real] runs in real time with this machine's processes and files.
//
// What must hold, and is looked at whenever something happens:
//
//   - an instruction starts at most once, over all lives of the executor;
//   - delivered output is a prefix of what the command said, and all of it when the
//     outcome says success;
//   - an instruction has one terminal, the same bytes each time but for the
//     generation, and it is true: what is called dead is dead, what is called not
//     started never was, a timeout does not come early;
//   - a connection carries frames of its own generation only, and only about work
//     that the server listed or sent on it; at generationAck nothing else runs;
//   - epoch and supports are the process's own and never change in its life;
//   - what is held back is bounded, per instruction and over all, and no more chunks
//     are under way than a server can put in order;
//   - heartbeats name what runs;
//   - the reference server has nothing to object to, less what the order of the day
//     excuses (see [World]);
//   - after a final bye that nothing keeps from being heard, there is no other
//     connection, and the executor ends with the error that says so;
//   - what is listed when the faults are over is answered before the server gives it up;
//   - when everything is settled, the executor comes to hold nothing any more: no work, no
//     output, no result, no call that counts as stuck;
//   - once the faults are over, the executor is active again, fresh work succeeds,
//     and so do the plain cases of what was mixed up before: a cancel or a timeout, a
//     connection lost with an instruction or a result, and leaving with work in hand,
//     each promptly;
//   - everything the server holds settles, and after the end no goroutine is left.
package simulation
