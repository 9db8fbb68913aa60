package main

// This file is the command explain, which prints what a code or word means.

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/pipeline/validate/identity"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// explainCommand returns the command explain.
func explainCommand() *cli.Command {
	return newCommand(&cli.Command{
		Name:      "explain",
		ArgsUsage: "[CODE...]",
		Usage:     "print what a code means and what to do about it",
		Description: `Codes of drops, warnings, findings and rejections, gates, identities between streams, words that are printed, and features.
Without an argument all are listed; a part of a code lists those that contain it.

Example:
   blis-train explain no_interval`,
	}, nil, func(c *cli.Context, con *console) error { return explain(con, c.Args().Slice()) })
}

// explain prints the codes that the arguments name, all codes without an argument. Each argument
// must match at least one.
func explain(con *console, args []string) error {
	all := slices.Concat(catalogue(), gateReasons(), identityEntries(), wordEntries())
	var found []explained
	if len(args) == 0 {
		found = all
	}
	for _, arg := range args {
		hits := matchingCodes(all, arg)
		if len(hits) == 0 {
			return unknownCode(all, arg)
		}
		found = append(found, hits...)
	}
	if con.json {
		return con.document(found)
	}
	for i, e := range found {
		if i > 0 && len(args) > 0 {
			fmt.Fprintln(con.out)
		}
		if len(args) == 0 {
			fmt.Fprintf(con.out, "%-32s %-8s %s\n", e.Code, e.Kind, e.Meaning)
			continue
		}
		fmt.Fprintf(con.out, "%s (%s, %s)\n  %s\n", e.Code, e.Kind, e.Package, e.Meaning)
		if e.Action != "" {
			fmt.Fprintf(con.out, "  %s\n", e.Action)
		}
	}
	return nil
}

// shortWord is the length from which a part of a code is looked for.
const shortWord = 4

// matchingCodes returns the entries with exactly the code in arg, or if there is none those that
// contain it.
func matchingCodes(all []explained, arg string) []explained {
	want := strings.ToLower(strings.NewReplacer("-", "_", " ", "_").Replace(arg))
	var exact, containing []explained
	for _, e := range all {
		if string(e.Code) == want {
			exact = append(exact, e)
		}
		if strings.Contains(string(e.Code), want) {
			containing = append(containing, e)
		}
	}
	switch {
	case len(exact) > 0:
		return exact
	case len(want) < shortWord: // it would be in many codes that have nothing to do with it
		return nil
	}
	return containing
}

// unknownCode returns the error for an argument that matches no code, with the nearest code as a
// hint.
func unknownCode(all []explained, arg string) error {
	var names []string
	for _, e := range all {
		names = append(names, string(e.Code))
	}
	return &option.Misuse{Msg: fmt.Sprintf("no code %q", arg),
		Hint: cmp.Or(didYouMean(arg, names), "blis-train explain lists every code")}
}

// codesPacked is codes.yaml, compressed because the program would be larger than it may be. The file explains every code:
// what happened and what to do about it, by package. A code has one meaning, but a package may explain its own case in more
// detail.
//
//go:embed codes.zst
var codesPacked []byte

// codeText returns the text of codes.yaml.
func codeText() []byte {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic("codes.zst: " + err.Error())
	}
	defer r.Close()
	text, err := r.DecodeAll(codesPacked, nil)
	if err != nil {
		panic("codes.zst: " + err.Error())
	}
	return text
}

// explained is one code as explain prints it.
type explained struct {
	Code    trace.Code `json:"code"`
	Package string     `json:"package"`          // that prints it, or the place where a word is printed
	Kind    string     `json:"kind" yaml:"kind"` // of codes: drop, warning, error, finding, tag or usage; else gate, reason, identity, word, feature
	Meaning string     `json:"meaning" yaml:"meaning"`
	Action  string     `json:"action" yaml:"action"` // what to do about it; "": nothing
}

// isUsage reports whether a code is that of a command that was called wrongly.
func isUsage(code trace.Code) bool {
	return slices.ContainsFunc(catalogue(), func(e explained) bool { return e.Code == code && e.Kind == "usage" })
}

// gateReasons returns explanations of the words that are no codes: the gates, and the reasons in
// failed gates and diagnoses.
func gateReasons() (all []explained) {
	for _, g := range gate.All() {
		all = append(all, explained{
			Code:    trace.Code(g.Name),
			Package: "pipeline/validate",
			Kind:    "gate",
			Meaning: asSentence(g.What + ": " + g.Means),
			Action:  asSentence(g.Do),
		})
	}
	for word, e := range report.Explanations {
		all = append(all, explained{
			Code:    trace.Code(word),
			Package: cmp.Or(e.Of, "pipeline/validate"),
			Kind:    "reason",
			Meaning: asSentence(e.What + ": " + e.Means),
			Action:  asSentence(e.Do),
		})
	}
	stat.SortStable(all, func(a, b explained) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// asSentence returns s with a capital first letter and a full stop.
func asSentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// identityEntries returns what must hold between the streams of a recording, one entry for each identity.
func identityEntries() (all []explained) {
	for _, id := range identity.All() {
		effect := "is named and fails nothing"
		switch id.Effect {
		case result.IdentityFails:
			effect = "fails " + strings.Join(id.Harms, ", ")
		case result.IdentityUndecided:
			effect = "leaves undecided " + strings.Join(id.Harms, ", ")
		}
		all = append(all, explained{
			Code:    trace.Code(id.Name),
			Kind:    "identity",
			Package: "pipeline/validate/identity",
			Meaning: fmt.Sprintf("Of %s: %s.", id.Streams, id.Holds),
			Action:  fmt.Sprintf("Tolerance: %s. A violation %s.", id.Tolerance, effect),
		})
	}
	return all
}

// catalogue returns the codes of all packages, sorted by code and package.
var catalogue = sync.OnceValue(func() (all []explained) {
	byPackage := *files.Embedded[map[string]map[trace.Code]explained](codeText(), "codes.yaml")()
	for name, codes := range byPackage {
		for code, e := range codes {
			e.Code = code
			e.Package = name
			all = append(all, e)
		}
	}
	stat.SortStable(all, func(a, b explained) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Package, b.Package))
	})
	return all
})
