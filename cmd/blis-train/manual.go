package main

// This file makes the man page.

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/result/folder"
)

// manual returns the man page: the one that the library makes, with the description of every
// command, and sections on exit status, environment and files.
func manual(app *cli.App) (string, error) {
	describeUsage(app.Commands)
	page := cli.MarkdownDocTemplate
	defer func() { cli.MarkdownDocTemplate = page }()
	cli.MarkdownDocTemplate += manualSections()
	return app.ToManWithSection(1)
}

// describeUsage sets the usage text of commands to their description, because the library prints
// only the usage text of a command.
func describeUsage(commands []*cli.Command) {
	for _, c := range commands {
		if c.Name == "help" {
			c.Hidden = true
			continue
		}
		c.UsageText = strings.TrimSpace(c.HelpName+" "+c.ArgsUsage) + "\n\n" + c.Description
		describeUsage(c.Subcommands)
	}
}

// manualSections returns the sections of the man page that the library does not make, as Markdown.
func manualSections() string {
	var b strings.Builder
	section := func(title string, items [][2]string) {
		fmt.Fprintf(&b, "\n# %s\n", title)
		for _, item := range items {
			fmt.Fprintf(&b, "\n**%s**\n: %s\n", item[0], item[1])
		}
	}
	section("EXIT STATUS", [][2]string{
		{fmt.Sprint(exitOK), "done"},
		{fmt.Sprint(exitFailed), "failed"},
		{fmt.Sprint(exitUsage), "called wrongly"},
		{fmt.Sprint(exitGate), "done, and a gate failed"},
		{fmt.Sprint(exitInterrupted), "interrupted"},
	})
	var variables [][2]string
	for _, name := range environmentFlags {
		variables = append(variables, [2]string{environment(name), "the default of --" + name})
	}
	section("ENVIRONMENT", append(variables,
		[2]string{"HF_HOME, HF_HUB_CACHE", "where init finds a model's config.json"},
		[2]string{"NO_COLOR", "tables without colours"}))
	section("FILES", [][2]string{
		{"run.yaml", "in a run folder: the server that was recorded; init writes it"},
		{configName, "of the working folder, or --config: options by stage and gate thresholds"},
		{"OUT/tables/run=ID/*.parquet, OUT/" + folder.ExtractFile, "what extract read, kept and dropped"},
		{"OUT/" + folder.FitFile, "the fit, with its warnings"},
		{"OUT/" + folder.CoefficientsFile, "the coefficients, with everything needed to validate and repeat them"},
		{"OUT/" + folder.ValidationFile + ", OUT/" + folder.ReportFile, "gates, verdicts and why"},
		{"OUT/" + folder.SimulationFile + ", OUT/requests.parquet", "a simulated run"},
		{"OUT/.extract-cache.json", "which bytes were extracted, so that they are not read again"},
	})
	return b.String()
}
