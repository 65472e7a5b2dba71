//go:build !race

package simulation

const sizeOfPatience = 1
