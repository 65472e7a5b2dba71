// Package service keeps a device's executor running in the background: as a
// systemd user unit on Linux, as a LaunchAgent on macOS.
//
// It promises:
//
//   - One service per device. The service's name carries the device id, its one
//     file is written by Install and by nobody else, so devices do not share
//     anything and one can go without the others noticing.
//   - The manager starts the executor again after a crash or an unexpected end,
//     and never after an end that is final ([Final]): a revoked device, a
//     second executor, a version too old.
//   - Stopping lets running commands finish within the drain time and kills
//     what is left after that.
//   - Installing twice changes nothing. Uninstalling removes what installing
//     wrote and nothing else; a file that somebody edited is kept unless they
//     say otherwise, and says so ([ForeignFileError]).
//   - Values reach the executor byte for byte, whatever they look like to the
//     manager's own syntax, or are refused ([ValueError]).
//   - Each failure is typed and says what a person can do.
//
// The managers are steered through their own programs (systemctl, loginctl,
// journalctl, launchctl), run by a [Runner].
//
// The other side is here too: [TakeNotifier] lets an executor tell systemd that
// it is up, what it does, and that it is stopping.
package service
