package gateway

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentixd/agentixd/gen/openapi"
)

// rawSchemas are the JSON types of raw_json fields; a field that is not here is any.
var rawSchemas = map[string]string{
	"v1RemoteRequest.args":            "array",
	"v1RemoteRequest.kwargs":          "object",
	"v1RemoteResponse.value":          "",
	"v1LogRecord.extras":              "object",
	"v1SpanEvent.attributes":          "object",
	"v1SpanEvent.error":               "object",
	"v1SpanEvent.events":              "array",
	"v1PluginEvent.data":              "",
	"RemoteServiceRemoteBody.args":    "array",
	"RemoteServiceRemoteBody.kwargs":  "object",
	"RemoteService_SubmitCall.args":   "array", // a body without a name of its own
	"RemoteService_SubmitCall.kwargs": "object",
}

type object = map[string]any

// openAPIDocument is the generated document, changed to what the gateway really speaks:
// raw_json fields are JSON values, StreamEvents answers one event a line, a token is needed.
func openAPIDocument() ([]byte, error) {
	var document object
	if err := json.Unmarshal(openapi.Document, &document); err != nil {
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	document["info"] = object{
		"title": "Agentix gateway", "version": "v1",
		"description": "Calls Python functions in sandboxes. Errors are a google.rpc.Status with one google.rpc.ErrorInfo.",
	}
	document["securityDefinitions"] = object{"token": object{
		"type": "apiKey", "in": "header", "name": "Authorization", "description": "`Bearer TOKEN`; not needed on the Unix socket.",
	}}
	document["security"] = []any{object{"token": []any{}}}
	definitions, _ := document["definitions"].(object)
	for name, definition := range definitions {
		rawProperties(name, definition)
	}
	paths, _ := document["paths"].(object)
	plain := object{}
	for path, item := range paths {
		for method, operation := range item.(object) {
			path := plainPath(path, operation.(object))
			streamOperation(operation.(object))
			bodyOperation(operation.(object))
			asyncOperation(operation.(object))
			if plain[path] == nil {
				plain[path] = object{}
			}
			plain[path].(object)[method] = operation
		}
	}
	document["paths"] = plain
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write OpenAPI document: %w", err)
	}
	return append(text, '\n'), nil
}

// rawProperties corrects a schema of this name.
func rawProperties(name string, schema any) {
	properties, _ := schema.(object)["properties"].(object)
	for field, property := range properties {
		if kind, ok := rawSchemas[name+"."+field]; ok {
			rawProperty(property.(object), kind)
		}
	}
}

// bodyOperation corrects the schema of a body that stands in the operation itself.
func bodyOperation(operation object) {
	id, _ := operation["operationId"].(string)
	parameters, _ := operation["parameters"].([]any)
	for _, p := range parameters {
		if schema, ok := p.(object)["schema"].(object); ok {
			rawProperties(id, schema)
		}
	}
}

// asyncOperation adds to Remote what the Prefer header makes of it.
func asyncOperation(operation object) {
	if operation["operationId"] != "RemoteService_Remote" {
		return
	}
	parameters, _ := operation["parameters"].([]any)
	operation["parameters"] = append(parameters, object{
		"name": "Prefer", "in": "header", "type": "string",
		"description": "`respond-async`: answer 202 with the Call once it is accepted; it goes on when the caller leaves. `respond-async, wait=N`: the outcome, if there is one within N seconds (RFC 7240).",
	})
	operation["responses"].(object)["202"] = object{
		"description": "With `Prefer: respond-async`: the call was accepted.",
		"schema":      object{"$ref": "#/definitions/v1Call"},
		"headers": object{
			"Location":           object{"type": "string", "description": "Path of the call."},
			"Preference-Applied": object{"type": "string"},
		},
	}
}

func rawProperty(property object, kind string) {
	delete(property, "type")
	switch kind {
	case "array":
		property["type"] = kind
		property["items"] = object{}
	case "object":
		property["type"] = kind
		property["additionalProperties"] = true
	}
}

// plainPath writes a path whose parameter is a resource name, as `sandboxes/[^/]+/calls/[^/]+`,
// with one parameter for each id: the generator's own, `{name}` and `{name_1}`, would have clients
// escape the slashes.
func plainPath(path string, operation object) string {
	parameters, _ := operation["parameters"].([]any)
	var kept []any
	for _, p := range parameters {
		pattern, _ := p.(object)["pattern"].(string)
		if p.(object)["in"] != "path" || !strings.Contains(pattern, "/[^/]+") { // no resource name
			kept = append(kept, p)
			continue
		}
		var parts []string
		for collection := range strings.SplitSeq(strings.ReplaceAll(pattern, "/[^/]+", ""), "/") {
			id := strings.TrimSuffix(collection, "s")
			if strings.HasSuffix(collection, "xes") {
				id = strings.TrimSuffix(collection, "es")
			}
			parts = append(parts, collection, "{"+id+"}")
			kept = append(kept, object{"name": id, "in": "path", "required": true, "type": "string", "pattern": "[^/]+", "description": "Id in `" + collection + "`."})
		}
		path = strings.Replace(path, "{"+p.(object)["name"].(string)+"}", strings.Join(parts, "/"), 1)
	}
	operation["parameters"] = kept
	return path
}

// streamOperation describes a streaming method by its lines instead of the generator's wrapper.
func streamOperation(operation object) {
	responses, _ := operation["responses"].(object)
	good, _ := responses["200"].(object)
	schema, _ := good["schema"].(object)
	properties, _ := schema["properties"].(object)
	result, _ := properties["result"].(object)
	if result == nil {
		return
	}
	if result["$ref"] != "#/definitions/v1StreamEventsResponse" {
		good["description"] = "Newline-delimited JSON: one message a line; a line {\"error\": Status} if the stream fails."
		good["schema"] = result
		operation["produces"] = []any{typeLines}
		return
	}
	good["description"] = "Newline-delimited JSON: one event a line, empty lines as heartbeats; a line {\"error\": Status} if the stream fails. With `Accept: text/event-stream` server-sent events: the kind is the name, the cursor the id, the same JSON the data; an event `error` if the stream fails."
	good["schema"] = object{"$ref": "#/definitions/v1Event"}
	operation["produces"] = []any{typeLines, typeEvents}
	parameters, _ := operation["parameters"].([]any)
	operation["parameters"] = append(parameters, object{
		"name": "Last-Event-ID", "in": "header", "type": "string",
		"description": "Server-sent events only: begin after the event with this id, whatever `after`, `tail` and `since` say.",
	})
}
