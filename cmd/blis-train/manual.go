package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/result/folder"
)

// roff is a man page in the making (man(7)).
type roff struct{ strings.Builder }

// manual is the man page: every command with its options, exit status, environment and
// files. The library's own page goes by way of Markdown, whose two modules a release leaves out.
func manual(app *cli.App) string {
	var r roff
	fmt.Fprintf(&r, ".TH %s 1 \"\" \"%s %s\"\n", app.Name, app.Name, folder.ToolVersion)
	r.section("NAME")
	r.text(app.Name + " - " + app.Usage)
	r.section("SYNOPSIS")
	r.text(app.Name + " COMMAND [OPTION...] [ARGUMENT...]")
	r.section("DESCRIPTION")
	r.text(app.Description)
	r.section("COMMANDS")
	r.commands(app.Name, app.Commands)
	r.section("EXIT STATUS")
	r.items([2]string{fmt.Sprint(exitOK), "done"}, [2]string{fmt.Sprint(exitFailed), "failed"},
		[2]string{fmt.Sprint(exitUsage), "called wrongly"}, [2]string{fmt.Sprint(exitGate), "ran fine, and a gate failed"},
		[2]string{fmt.Sprint(exitInterrupted), "interrupted"})
	r.section("ENVIRONMENT")
	for _, name := range environmentFlags {
		r.items([2]string{environment(name), "as --" + name})
	}
	r.items([2]string{"HF_HOME, HF_HUB_CACHE", "where init finds a model's config.json"}, [2]string{"NO_COLOR", "tables without colours"})
	r.section("FILES")
	r.items([2]string{"run.yaml", "in a run folder: what was running; init writes it"},
		[2]string{configName, "of the working folder, or --config: options by stage and gate thresholds"},
		[2]string{"OUT/tables/run=ID/*.parquet, OUT/" + folder.ExtractFile, "what extract read, kept and dropped"},
		[2]string{"OUT/" + folder.FitFile, "the fit, with its warnings"},
		[2]string{"OUT/" + folder.CoefficientsFile, "the product: coefficients with everything needed to judge and repeat them"},
		[2]string{"OUT/" + folder.ValidationFile + ", OUT/" + folder.ReportFile, "gates, verdicts and why"},
		[2]string{"OUT/" + folder.SimulationFile + ", OUT/requests.parquet", "what a simulated server did"},
		[2]string{"OUT/.extract-cache.json", "what was extracted from which bytes"})
	return r.String()
}

func (r *roff) section(name string) { fmt.Fprintf(r, ".SH %s\n", name) }

// commands are those below a command, each with its own.
func (r *roff) commands(above string, list []*cli.Command) {
	for _, c := range list {
		if c.Name == "help" {
			continue
		}
		name := above + " " + c.Name
		fmt.Fprintf(r, ".SS %s\n", roffLine(strings.TrimSpace(name+" "+c.ArgsUsage)))
		r.text(c.Usage)
		if c.Description != "" {
			r.WriteString(".PP\n")
			r.text(c.Description)
		}
		for _, f := range c.Flags {
			term, said, _ := strings.Cut(f.String(), "\t") // as --help shows it
			r.items([2]string{term, said})
		}
		r.commands(name, c.Subcommands)
	}
}

func (r *roff) items(list ...[2]string) {
	for _, item := range list {
		fmt.Fprintf(r, ".TP\n.B %s\n%s\n", roffLine(item[0]), roffLine(item[1]))
	}
}

// text is running text; lines that are indented stand as they are, and so does a heading
// that ends in a colon before them.
func (r *roff) text(s string) {
	code := false
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "   "); indented != code {
			r.WriteString(map[bool]string{true: ".EX\n", false: ".EE\n"}[indented])
			code = indented
		}
		if line == "" {
			r.WriteString(".PP\n")
			continue
		}
		r.WriteString(roffLine(line) + "\n")
	}
	if code {
		r.WriteString(".EE\n")
	}
}

// roffLine is a line as roff reads it: no commands, and hyphens that can be copied.
func roffLine(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}
