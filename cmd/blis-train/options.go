package main

import (
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
		return c.StringSlice(o.Name)
	}
	return c.String(o.Name)
}
