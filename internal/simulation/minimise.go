package simulation

// Minimise finds a small part of n events that still fails: no event can be left
// out of it any more. fails is asked about the numbers of the events that are kept,
// in order; it is known to be true of all of them.
func Minimise(n int, fails func(keep []int) bool) []int {
	keep := make([]int, n)
	for i := range keep {
		keep[i] = i
	}
	for size := max(n/2, 1); ; size = max(size/2, 1) {
		dropped := false
		for from := 0; from < len(keep); {
			to := min(from+size, len(keep))
			rest := append(append([]int{}, keep[:from]...), keep[to:]...)
			if fails(rest) {
				keep, dropped = rest, true
			} else {
				from = to
			}
		}
		if size == 1 && !dropped {
			return keep
		}
	}
}
