package main

import "github.com/spf13/cobra"

// newTopics are the help pages that belong to no one command.
func newTopics() []*cobra.Command {
	return []*cobra.Command{
		{
			Use:   "exit-codes",
			Short: "What the exit codes of 'sema device' mean",
			Long: `Exit codes of 'sema device'. A service starts its executor again after those
marked with *, and after no other.

  0    done; of serve: stopped by a signal, with its work finished or ended
  1 *  unexpected error; of doctor: something would stop work
  2    wrong usage: the message says what to change
  3    no such device, or nothing enrolled
  4    another executor on this machine serves the device
  5    revoked: the key has been deleted; enroll again
  6    superseded by another executor elsewhere
  7    this executor is too old for the server
  8    of enroll: the server refused
  9 *  the private key cannot be read: keychain locked, file missing or open
       to others

'try' exits with the exit code of its command, and with 130 when interrupted.`,
		},
		{
			Use:   "instructions",
			Short: "How commands run and files are written on this machine",
			Long: `A command runs in the shell, as you, with nothing on its standard input and
without a terminal: what asks for a password fails at once. It is over when its
shell is. What the shell left running gets a second to finish and is ended then,
wherever it hid; 'sema device activity' counts it. The exit code is the shell's,
also where a leftover could not be ended, as one that is stuck in the kernel:
the log of 'serve' then names the instruction and the processes. Only where the
command itself was to be ended and lives on, its outcome is outcome_unknown,
never killed or timeout.

What a command hands over to a service of the machine, such as systemd-run, at,
cron or a container engine, is that service's from then on and is not ended.
On macOS a process can hide from that: one that left its session and lost its
parent before it was seen, unless its environment tells whose it is. And there
the commands of an executor that is killed outright go on until the next start.

A file is written beside its place, checked, and put there in one step: what
reads it meanwhile finds the old one or the new one. Where the system does not
let a name be put or replaced (a folder that is not yours, or append-only after
'chattr +a'; a file that is a mount; a full disk), the write fails and says so,
and nothing has changed. Nothing is ever written half in place.

appendFile is the exception that 'sema device serve --help' tells of.`,
		},
		{
			Use:   "environment",
			Short: "The environment variables that 'sema' reads",
			Long: `Environment variables that 'sema' reads:

  SEMA_HOME          the folder of records and keys; otherwise 'sema' in the
                     user's configuration folder
  SEMA_SERVER        in place of --server
  SEMA_CREDENTIAL    your credential for enrolling; never stored
  SEMA_ENROLL_TOKEN  an enrollment token that was issued elsewhere
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
                     the way to the server
  SSL_CERT_FILE      a file of CA certificates (PEM) to trust beside the
                     system's
  NO_COLOR           anything in it: no colours

Commands that run for the cloud get the environment of the executor, or of your
login shell (see --env of serve), without the SEMA_ variables that hold secrets,
and with SEMA_INSTRUCTION_ID.`,
		},
		{
			Use:   "json",
			Short: "What --json prints",
			Long: `--json prints the answer of a command as JSON on stdout, in one line. What a
person should know still goes to stderr, as does a failure, and the exit code is
the same. Later versions may add members; they take none away. Members with *
are left out where there is nothing to say.

  list               an array; of each device: deviceId, name*, server*,
                     workspaceRoot*, keyStore*, publicKey*, enrolledAt*,
                     revoked*, keyLeft*, keyUnsure*, running, pid*, problem*
  enroll             deviceId, server, workspaceRoot, keyStore, publicKey
  unenroll           deviceId, server, serviceInstalled
  key move           deviceId, keyStore, from, unsure*
  status             deviceId, server, running, pid*, revoked*, keyLeft*,
                     keyUnsure*, executor*, problem*, service*; with --watch a
                     line for each change
  doctor             machine, devices
  activity           a line for each entry: phase, time, pid, id*,
                     rootSessionId*, kind*, waitedMs*, durationMs*, bytesIn*,
                     bytesOut*, outcome*, exitCode*, processesEnded*, stuck*,
                     command*, paths*, lost*
  service install    deviceId, file, change, started, restarted
  service uninstall  deviceId, file
  service start      deviceId, running
  service stop       deviceId, running
  service status     deviceId, manager, service, file, installed, orphaned*,
                     edited*, enabled, masked*, lingering*, running,
                     restarting*, phase*, pid*, restarts*, lastExit*, text*,
                     problem*
  conformance        passed, failed, notApplicable, rows and more
  refserver          a line for each event: event (listening, connected,
                     disconnected, goodbye, waiting, sent, output, settled,
                     refused, violation), server*, line*, deviceId*, gen*,
                     instructionId*, kind*, chunk*, text*, base64*, outcome*,
                     settledBy*, bytes*, reason*, message*
  version            version, revision*, modified*, protocolVersion, go,
                     platform

executor is what status.json holds, service what 'service status' prints. Times
are in the form of RFC 3339. 'try' passes on what the instruction itself prints,
and 'service logs' what was logged; for JSON there, see --log-format.`,
		},
		{
			Use:   "files",
			Short: "The files that 'sema device' keeps on this machine",
			Long: `Each device has a folder, devices/DEVICE in SEMA_HOME, that only you can open:

  device.json      the record: server, workspace, public key, where the private
                   key is. It holds no secret.
  key              the private key, unless the keychain has it
  key.lock         held by a command as long as it moves or deletes that key
  lock             held by the executor that serves the device, with its number
  holder.json      which process that is, as long as it runs
  status.json      what that executor does; 'sema device status' reads it
  activity.jsonl   what was done, a line of JSON each, and three files of older
                   lines; 8 MiB in all. 'sema device activity' reads it
  ledger           commands and temporary files in use, so that the next start
                   can end and remove what a crash leaves; with some room in
                   reserve, so that a full disk can be freed by a command

Never written down: tokens, credentials, file contents, command output, values
of environment variables. Command text and paths only with --log-commands.`,
		},
	}
}
