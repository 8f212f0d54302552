package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/agentixd/agentixd/gen/openapi"
)

// rawSchemas are the JSON types of raw_json fields; a field that is not here is any.
var rawSchemas = map[string]string{
	"v1RemoteRequest.args":           "array",
	"v1RemoteRequest.kwargs":         "object",
	"v1RemoteResponse.value":         "",
	"v1LogRecord.extras":             "object",
	"v1SpanEvent.attributes":         "object",
	"v1SpanEvent.error":              "object",
	"v1SpanEvent.events":             "array",
	"v1PluginEvent.data":             "",
	"RemoteServiceRemoteBody.args":   "array",
	"RemoteServiceRemoteBody.kwargs": "object",
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
		properties, _ := definition.(object)["properties"].(object)
		for field, property := range properties {
			if kind, ok := rawSchemas[name+"."+field]; ok {
				rawProperty(property.(object), kind)
			}
		}
	}
	paths, _ := document["paths"].(object)
	for _, path := range paths {
		for _, operation := range path.(object) {
			streamOperation(operation.(object))
		}
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write OpenAPI document: %w", err)
	}
	return append(text, '\n'), nil
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
	good["description"] = "Newline-delimited JSON: one event a line, empty lines as heartbeats; a line {\"error\": Status} if the stream fails."
	good["schema"] = object{"$ref": "#/definitions/v1Event"}
	operation["produces"] = []any{"application/x-ndjson"}
}
