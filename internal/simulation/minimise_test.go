package simulation

import (
	"slices"
	"testing"
)

func TestMinimiseKeepsWhatIsNeededAlone(t *testing.T) {
	for _, needed := range [][]int{{}, {0}, {19}, {3, 4}, {0, 7, 19}, {1, 2, 3, 5, 8, 13}} {
		asked := 0
		got := Minimise(20, func(keep []int) bool {
			asked++
			for _, n := range needed {
				if !slices.Contains(keep, n) {
					return false
				}
			}
			return true
		})
		if !slices.Equal(got, needed) || asked > 150 {
			t.Errorf("minimised to %v after %d questions, want %v", got, asked, needed)
		}
	}
}
