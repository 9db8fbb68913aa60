package main

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/option"
)

// stageFlags are the flags of stages, made from their tables; of a name that
// several tables have, the first.
func stageFlags(tables ...option.Table) []cli.Flag {
	seen := map[string]bool{}
	var all []cli.Flag
	for _, t := range tables {
		for _, o := range t {
			if !seen[o.Name] {
				seen[o.Name] = true
				all = append(all, flagOf(o))
			}
		}
	}
	return all
}

// filterFlags are --only and --exclude alone, for commands that read tables.
func filterFlags() []cli.Flag { return stageFlags((&pipeline.Filter{}).Table()) }

// workFlags are those of commands that read many recordings.
func workFlags() []cli.Flag {
	o := pipeline.DefaultExtractOptions()
	return append(stageFlags(o.Table().Only("only", "exclude", "workers", "force")),
		&cli.BoolFlag{Name: "dry-run", Usage: "list what would be read and stop"})
}

func flagOf(o option.Option) cli.Flag {
	switch v := o.Default.(type) {
	case string:
		return &cli.StringFlag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case float64:
		return &cli.Float64Flag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case int64:
		return &cli.Int64Flag{Name: o.Name, Usage: o.Usage, Value: v, DefaultText: o.Shown}
	case bool:
		return &cli.BoolFlag{Name: o.Name, Usage: o.Usage, Value: v}
	case []string:
		return &cli.StringSliceFlag{Name: o.Name, Usage: o.Usage}
	}
	panic("option --" + o.Name + ": no flag for its type")
}

// setOptions hands the stages what the command line, or pipeline.yaml, says.
func setOptions(c *cli.Context, tables ...option.Table) error {
	for _, t := range tables {
		for _, o := range t {
			if !c.IsSet(o.Name) {
				continue
			}
			if err := o.Set(stageValue(c, o)); err != nil {
				return err
			}
		}
	}
	return nil
}

func stageValue(c *cli.Context, o option.Option) any {
	switch o.Default.(type) {
	case float64:
		return c.Float64(o.Name)
	case int64:
		return c.Int64(o.Name)
	case bool:
		return c.Bool(o.Name)
	case []string:
		return listOf(c, o.Name)
	}
	return c.String(o.Name)
}

// settingFlag is the list whose values are taken as they stand: YAML or JSON.
const settingFlag = "set"

// withoutBlanks is a setting whose value, where it is JSON, has no blanks: recorded
// command lines are cut at blanks.
func withoutBlanks(setting string) string {
	key, value, _ := strings.Cut(setting, "=")
	var b bytes.Buffer
	if strings.ContainsAny(value, " \t\n") && json.Compact(&b, []byte(value)) == nil {
		return key + "=" + b.String()
	}
	return setting
}

// listOf is a list given in several flags, or in one with commas.
func listOf(c *cli.Context, name string) []string {
	all, out := c.StringSlice(name), []string(nil)
	if name == settingFlag {
		for _, v := range all {
			out = append(out, withoutBlanks(v))
		}
		return out
	}
	for _, v := range all {
		for part := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(part))
		}
	}
	return out
}
