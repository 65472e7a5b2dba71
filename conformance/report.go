package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Count counts the results of each verdict.
func Count(results []Result) map[Verdict]int {
	n := map[Verdict]int{}
	for _, r := range results {
		n[r.Verdict]++
	}
	return n
}

// Printer writes results for people, one at a time, as they come.
type Printer struct {
	w    io.Writer
	told map[string]string // findings → the first row that had them
	fold func(lead, text string) string
}

// NewPrinter returns one that writes to w, each line whole, as programs take them
// that look for a row.
func NewPrinter(w io.Writer) *Printer {
	return &Printer{w, map[string]string{}, func(lead, text string) string { return lead + text }}
}

// Fold has fold lay out what is written from now on: a line's text, which follows
// upon lead, in as many lines as where it is shown have room for it.
func (p *Printer) Fold(fold func(lead, text string) string) { p.fold = fold }

// Row writes a result as one line, and under a failed one what was found, the
// frames of the exchange and what the executor printed. What ails an executor as a
// whole makes many rows fail alike: that is told in full once. A row that was not
// judged is passed over.
func (p *Printer) Row(r Result) error {
	if r.Verdict == NotJudged {
		return nil
	}
	word := map[Verdict]string{Pass: "pass", Fail: "FAIL", NotApplicable: "n/a "}[r.Verdict]
	var b strings.Builder
	line := func(lead, text string) { b.WriteString(p.fold(lead, text) + "\n") }
	line(fmt.Sprintf("%s  %-24s %-12s ", word, r.Row.ID, r.Row.Section), r.Row.Promise)
	for _, f := range r.Crowded {
		line("        ", "alone; beside other rows: "+plain(f))
	}
	for _, n := range r.Notes {
		line("        ", "not judged: "+plain(n))
	}
	if r.Verdict == Pass {
		_, err := io.WriteString(p.w, b.String())
		return err
	}
	for _, f := range r.Findings {
		line("        ", plain(f))
	}
	alike := strings.Join(r.Findings, "\n")
	if first := p.told[alike]; first != "" && r.Verdict == Fail {
		line("      ", "as "+first+", which shows frames and output")
		_, err := io.WriteString(p.w, b.String())
		return err
	}
	p.told[alike] = r.Row.ID
	section := func(name string, lines []string) {
		if len(lines) > 0 {
			line("      ", name)
		}
		for _, l := range lines {
			line("        ", l)
		}
	}
	section("frames (→ from the device, ← from the server)", r.Frames)
	section("printed by the executor", r.Output)
	_, err := io.WriteString(p.w, b.String())
	return err
}

// reported is a result as JSON has it.
type reported struct {
	ID       string   `json:"id"`
	Section  string   `json:"section"`
	Promise  string   `json:"promise"`
	Verdict  Verdict  `json:"verdict"`
	Findings []string `json:"findings,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	Crowded  []string `json:"crowded,omitempty"`
	Frames   []string `json:"frames,omitempty"`
	Output   []string `json:"output,omitempty"`
	TookMs   int64    `json:"tookMs"`
}

// WriteJSON writes all results as one object: counts and rows.
func WriteJSON(w io.Writer, results []Result) error {
	rows := make([]reported, len(results))
	for i, r := range results {
		rows[i] = reported{r.Row.ID, r.Row.Section, r.Row.Promise, r.Verdict, r.Findings, r.Notes, r.Crowded, r.Frames, r.Output, r.Took.Milliseconds()}
	}
	n := Count(results)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Passed        int        `json:"passed"`
		Failed        int        `json:"failed"`
		NotApplicable int        `json:"notApplicable"`
		NotJudged     int        `json:"notJudged"`
		Rows          []reported `json:"rows"`
	}{n[Pass], n[Fail], n[NotApplicable], n[NotJudged], rows})
}

// The JUnit form that build services read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Time    string     `xml:"time,attr"`
		Failure *junitText `xml:"failure"`
		Skipped *junitText `xml:"skipped"`
		Out     string     `xml:"system-out,omitempty"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Body    string `xml:",chardata"`
	}
)

// WriteJUnit writes all results in JUnit's XML.
func WriteJUnit(w io.Writer, results []Result, took time.Duration) error {
	n := Count(results)
	suite := junitSuite{Name: "device executor protocol", Tests: len(results), Failures: n[Fail],
		Skipped: n[NotApplicable] + n[NotJudged], Time: seconds(took)}
	for _, r := range results {
		c := junitCase{Name: r.Row.ID + ": " + r.Row.Promise, Class: r.Row.Section, Time: seconds(r.Took)}
		switch r.Verdict {
		case Fail:
			c.Failure = &junitText{strings.Join(r.Findings, "; "), strings.Join(r.Frames, "\n")}
			c.Out = strings.Join(r.Output, "\n")
		case NotApplicable:
			c.Skipped = &junitText{Message: strings.Join(r.Findings, "; ")}
		case NotJudged:
			c.Skipped = &junitText{Message: string(NotJudged)}
		}
		if len(r.Crowded) > 0 {
			c.Out = "alone; beside other rows: " + strings.Join(r.Crowded, "; ")
		}
		if len(r.Notes) > 0 {
			c.Out = strings.TrimPrefix(c.Out+"\nnot judged: "+strings.Join(r.Notes, "; "), "\n")
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
