{{/* Every object has this name: a second installation meets the first one's objects, and helm says so. */}}
{{- define "coreslice.name" -}}coreslice{{- end }}

{{- define "coreslice.selectorLabels" -}}
app.kubernetes.io/name: coreslice
app.kubernetes.io/component: driver
{{- end }}

{{- define "coreslice.labels" -}}
app.kubernetes.io/name: coreslice
app.kubernetes.io/part-of: coreslice
{{- end }}

{{- define "coreslice.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Name of the class of N cores or chips: "neuron-core", "neuron-cores-4". Takes (list "core" 4). */}}
{{- define "coreslice.class" -}}
{{- $family := index . 0 -}}{{- $count := int (index . 1) -}}
neuron-{{ $family }}{{ if ne $count 1 }}s-{{ $count }}{{ end }}
{{- end }}

{{- define "coreslice.hardened" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* CEL: size of each class, by its name, in units of its own family. */}}
{{- define "coreslice.cel.classSizes" -}}
{{- $entries := list -}}
{{- range .Values.classes.cores }}{{ $entries = append $entries (printf "'%s': %d" (include "coreslice.class" (list "core" .)) (int .)) }}{{ end -}}
{{- range .Values.classes.chips }}{{ $entries = append $entries (printf "'%s': %d" (include "coreslice.class" (list "chip" .)) (int .)) }}{{ end -}}
{ {{- join ", " $entries -}} }
{{- end }}

{{/* CEL: class of each extended resource name, implicit or its own. */}}
{{- define "coreslice.cel.classOfName" -}}
{{- $entries := list -}}
{{- range $family, $counts := dict "core" .Values.classes.cores "chip" .Values.classes.chips -}}
{{- range $counts -}}
{{- $class := include "coreslice.class" (list $family .) -}}
{{- $entries = append $entries (printf "'deviceclass.resource.kubernetes.io/%s': '%s'" $class $class) -}}
{{- with index $.Values.classes.extendedResourceNames $class }}{{ $entries = append $entries (printf "'%s': '%s'" . $class) }}{{ end -}}
{{- end -}}
{{- end -}}
{ {{- join ", " $entries -}} }
{{- end }}

{{/* CEL: the start of the name of each class's larger siblings. */}}
{{- define "coreslice.cel.siblings" -}}
{{- $entries := list -}}
{{- range .Values.classes.cores }}{{ $entries = append $entries (printf "'%s': 'neuron-cores-'" (include "coreslice.class" (list "core" .))) }}{{ end -}}
{{- range .Values.classes.chips }}{{ $entries = append $entries (printf "'%s': 'neuron-chips-'" (include "coreslice.class" (list "chip" .))) }}{{ end -}}
{ {{- join ", " $entries -}} }
{{- end }}

{{/* What messages say of sizes that have no class. */}}
{{- define "coreslice.sizes" -}}
classes have {{ join ", " .Values.classes.cores }} cores or {{ join ", " .Values.classes.chips }} chips
{{- end }}
