// Package instructions is what a server may ask of this machine: the dispatcher
// that owns an instruction from the moment its frame was parsed (§5.2 R1), and
// one handler per kind.
//
// What the dispatcher promises for every instruction that carries an id:
//
//   - it runs at most once in the life of the process, whatever arrives;
//   - it is answered exactly once, whatever races, unless the fence ends it, which
//     is silent;
//   - `cancelled` is said only to a cancel, `timeout` only of work that is known
//     to be dead or to have no effect, `not_started` only where nothing happened;
//   - at most maxInflight are worked on, the rest wait in the order of arrival, and
//     what waits is bounded too.
//
// A handler sees none of that: it gets a context, a [Call] and returns one outcome.
package instructions
