//go:build race

package instructions

// sizeOfRealTests divides what the tests with real processes do: the race
// detector makes each byte and each process several times dearer.
const sizeOfRealTests = 10
