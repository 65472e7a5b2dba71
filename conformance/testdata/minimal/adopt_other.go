//go:build !linux

package main

// adopt does nothing: this system has no such thing.
func adopt() {}
