//go:build race

package simulation

// sizeOfPatience multiplies a limit that is short for the race detector.
const sizeOfPatience = 20
