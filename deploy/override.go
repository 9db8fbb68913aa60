package deploy

// This file applies settings of the form key=value on top of a run.yaml.

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// applySettings applies settings of the form "key.path=value" to the document's tree.
func applySettings(root *yaml.Node, set []string) error {
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" || root.Kind != yaml.MappingNode {
			return trace.Errorf(BadSetting, "setting %q: want key=value, such as vllm.max_num_seqs=128", s)
		}
		node, err := files.ParseYAML([]byte(value), key)
		if node == nil || err != nil {
			return trace.Errorf(BadSetting, "setting %s: got %q, want a YAML value", key, value)
		}
		node.Line, node.Column = 0, 0 // of no file: readConfig lets such a value name any file
		if err := setPath(root, strings.Split(key, "."), node); err != nil {
			return trace.Errorf(BadSetting, "setting %s: %v", key, err)
		}
	}
	return nil
}

// setPath sets the value under a path of keys, and adds the mappings that are missing.
func setPath(node *yaml.Node, keys []string, value *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%q is below a value, want a mapping", keys[0])
	}
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].Value != keys[0] {
			continue
		}
		if len(keys) == 1 {
			node.Content[i+1] = value
			return nil
		}
		if files.IsNull(node.Content[i+1]) {
			node.Content[i+1] = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		}
		return setPath(files.ResolveAlias(node.Content[i+1]), keys[1:], value)
	}
	child := value
	if len(keys) > 1 {
		child = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: keys[0]}, child)
	if len(keys) > 1 {
		return setPath(child, keys[1:], value)
	}
	return nil
}

// settingError returns an error about a value of set as one about the setting, which is in no file; others as they are.
func settingError(err error, set []string) error {
	at, ok := errors.AsType[*trace.SyntaxError](err)
	if !ok || at.Line > 0 {
		return err
	}
	for _, s := range set {
		key, _, _ := strings.Cut(s, "=")
		if strings.HasPrefix(at.Msg, key+": got ") {
			return trace.Errorf(BadSetting, "setting %s", at.Msg).WithHint(at.Hint)
		}
		for section := key; ; { // the first part that is unknown
			if strings.HasPrefix(at.Msg, fmt.Sprintf("unknown key %q", section)) {
				return trace.Errorf(BadSetting, "setting %s: %s", key, at.Msg).WithHint(at.Hint)
			}
			i := strings.LastIndexByte(section, '.')
			if i < 0 {
				break
			}
			section = section[:i]
		}
	}
	return err
}
