//go:build !race

package instructions

// sizeOfRealTests divides what the tests with real processes do.
const sizeOfRealTests = 1
