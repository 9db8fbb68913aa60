package workload

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// unread is a key that a format has and a reader does not: where its value stands, 0 when it is absent, null, false or
// an empty text.
type unread struct{ Line, Col int }

// UnmarshalYAML notes where the value stands.
func (u *unread) UnmarshalYAML(n *yaml.Node) error {
	off := n.Kind == yaml.ScalarNode && (n.Tag == "!!null" || n.Value == "" || n.Tag == "!!bool" && strings.EqualFold(n.Value, "false"))
	if !off {
		u.Line, u.Col = n.Line, n.Column
	}
	return nil
}

// topKeys lists the keys of the document's top mapping in order; nothing for another document or none.
func topKeys(text []byte) (keys []string) {
	root := yaml.Node{}
	if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(root.Content[0].Content); i += 2 {
		keys = append(keys, root.Content[0].Content[i].Value)
	}
	return keys
}
